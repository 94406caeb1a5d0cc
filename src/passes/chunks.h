// The cut of the model's operations into chunks.
#pragma once

#include <set>
#include <vector>

#include "ir/dag.h"

namespace piper::passes {

// A topological order of all ops of the model that keeps the given order where the data flow leaves a choice.
std::vector<ir::OpId> topological_order(const ir::Model& model);

// The value whose memory a value shares: reshapes cost nothing, as in the lowering of chunks. Values of `stop` have
// memory of their own.
ir::ValueId memory_of(const ir::Model& model, ir::ValueId v, const std::set<ir::ValueId>& stop);

// Fills dag.chunks with the connected components of live operations with equal tags at equal depth, where depth is the
// most tag changes on any path from an input; so the chunk graph has no cycle. Also sets each loss's chunk. Counts
// (LossInfo::count_op) belong to no chunk: they run on their own, before the step.
void cut_chunks(ir::TrainingDag& dag, const std::vector<char>& live);

}  // namespace piper::passes
