// Costs of compute nodes for scheduling decisions: FLOPs of one sample times the samples of the microbatch.
#pragma once

#include <vector>

#include "ir/dag.h"

namespace piper::passes {

// Duration of every node in arbitrary units; at least 1 for compute, so that order in time is order in the list; 0 for
// everything else.
std::vector<double> node_costs(const ir::TrainingDag& dag, int64_t batch);

}  // namespace piper::passes
