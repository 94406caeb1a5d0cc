// Where a model has experts: the operations on rows between MoEDispatch and MoECombine.
#pragma once

#include <vector>

#include "ir/dag.h"
#include "support/diagnostics.h"

namespace piper::passes {

// Gives the experts that `shard … as experts` names a tag of their own, so that each of their regions becomes a chunk
// between two exchanges, and lists them in dag.regions. E0519 for a directive that names no experts, E0520 for experts
// whose rows the rest of the model needs as well. An axis of size 1 divides nothing.
void mark_expert_regions(ir::TrainingDag& dag, const std::vector<char>& live, const ir::Strategy& strategy,
                         support::Diagnostics& diagnostics);

}  // namespace piper::passes
