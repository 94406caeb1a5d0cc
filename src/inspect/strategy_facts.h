// What a strategy makes of a model, as data: `piper inspect --strategy` prints it as tables or as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/model.h"
#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::inspect {

// Operations of one module that no rule named, which joined a region for one reason.
struct Adoption {
  std::string path;
  std::vector<std::string> regions;  // several: each has a copy
  std::string why;
  std::vector<std::string> kinds;  // of the operations
};

// Of one sample: floating-point operations, bytes kept for the backward. With recomputation, the second forward is part of
// the backward.
struct ChunkCost {
  double forward = 0, backward = 0;
  int64_t ops = 0, saved = 0;
  std::set<int32_t> params;
  void operator+=(const ChunkCost& other);
};

struct ChunkFacts {
  std::string name;
  ChunkCost cost;
  int64_t parameters = 0;           // elements
  std::vector<std::string> places;  // names of the placements that run it
};

struct StrategyFacts {
  // The tags of the operations directly in a module, by its path; "-" for none.
  std::map<std::string, std::set<std::string>> tags;
  std::vector<Adoption> adopted;
  std::vector<ChunkFacts> chunks;   // empty when the strategy has mistakes before they are placed
  std::vector<ChunkFacts> devices;  // by placement, what its chunks add up to
};

// Nothing when the strategy has mistakes in its annotations. Problems are reported, and what was found before them is
// returned.
std::optional<StrategyFacts> strategy_facts(const ir::Model& model, const ir::Strategy& strategy, support::Diagnostics& diagnostics);

}  // namespace piper::inspect
