// A first strategy for a model: `piper init`.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/model.h"
#include "support/error.h"

namespace piper::inspect {

struct FirstStrategyOptions {
  std::string model_file, strategy_file;  // as the comments name them
  int64_t pp = 1, dp = 1;
  std::string schedule = "1f1b";        // gpipe, 1f1b, interleaved
  int64_t batch = 0;                    // 0: chosen
  std::map<std::string, int64_t> dims;  // symbolic dims with their sizes
};

// The text of a strategy that trains the model, with a comment for each choice; or why there is none.
support::Expected<std::string> first_strategy(const ir::Model& model, const FirstStrategyOptions& options);

}  // namespace piper::inspect
