// Classes of ranks: ranks that are in the same placements run the same program.
#pragma once

#include <vector>

#include "codegen/transfers.h"
#include "ir/dag.h"

namespace piper::codegen {

struct RankClass {
  std::vector<ir::PlacementId> placements;  // ascending
  int32_t first_rank = 0;                   // its lowest rank
};

struct RankClasses {
  std::vector<RankClass> classes;   // by first rank
  std::vector<int32_t> class_of;    // per rank
};

RankClasses find_classes(const ir::TrainingDag& dag, Transfers& transfers);

}  // namespace piper::codegen
