// Costs of compute nodes for scheduling decisions: FLOPs of one sample times the samples of the microbatch.
#pragma once

#include <vector>

#include "ir/dag.h"

namespace piper::passes {

// Duration of every node in arbitrary units; at least 1 for compute, so that order in time is order in the list; 0 for
// everything else.
std::vector<double> node_costs(const ir::TrainingDag& dag, int64_t batch);

// The idle part of the compute streams of a DAG with a compute order, over its devices: of the whole step (global), which
// ends for all at once, and of the time between a device's first and last compute (inner). From FLOPs, with free
// communication.
struct Bubble {
  double global = 0, inner = 0;
};
Bubble predicted_bubble(const ir::TrainingDag& dag, int64_t batch);

}  // namespace piper::passes
