// A first strategy for a model: what `piper init` writes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/model.h"

namespace piper::cli {

struct SuggestOptions {
  int64_t pp = 1, dp = 1, batch = 16;
  std::string schedule = "1f1b";         // 1f1b, gpipe or interleaved
  std::map<std::string, int64_t> dims;   // sizes that the model was read with
};

struct Suggestion {
  std::string text;     // a strategy, not yet formatted
  int64_t layers = 0;   // of the repeated blocks; 0 when the model has none
};

Suggestion suggest(const ir::Model& model, const SuggestOptions& options);

}  // namespace piper::cli
