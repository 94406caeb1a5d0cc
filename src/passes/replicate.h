// What the compute order of a placement does with buckets.
#pragma once

#include <vector>

#include "ir/dag.h"

namespace piper::passes {

// A compute node of a placement's order, with its parts; several nodes when it was divided.
struct Step {
  struct Piece {
    ir::NodeId node;
    const ir::Part* part;
  };
  std::vector<Piece> pieces;
};

// The order of a placement, without counts.
std::vector<Step> steps_on(const ir::TrainingDag& dag, ir::PlacementId placement);

// Devices that hold a bucket, or a part of it.
int64_t holder_count(const ir::TrainingDag& dag, const ir::Bucket& bucket);

}  // namespace piper::passes
