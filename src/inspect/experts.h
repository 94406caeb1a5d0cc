// Mixtures of experts in a model.
#pragma once

#include <string>
#include <vector>

#include "ir/model.h"

namespace piper::inspect {

struct Experts {
  std::string path;                     // of the operation that routes
  int64_t experts = 0, choices = 0;     // of a token
  int64_t capacity = 0;                 // pairs that an expert takes of a group; 0: all
  std::string group;                    // tokens of a group
  std::vector<std::string> parameters;  // stacked: their first dim is the expert
};
// In the order they run.
std::vector<Experts> experts_of(const ir::Model& model);

// A line for those that are alike but for a number in their path.
std::string experts_text(const ir::Model& model);

}  // namespace piper::inspect
