// The terms of the loss as ops that sum over the batch and ops that count, so that a mean over the global batch does
// not depend on how the batch is cut.
#pragma once

#include "passes/pipeline.h"

namespace piper::passes {

// Appends the ops of every term to the model and fills dag.losses. Without a `loss` the only float output, when it is a
// scalar, is the loss. A scalar of the model is taken apart into means over samples (a mean over all elements, an
// in-graph cross-entropy, a masked mean, and weighted sums of these); one that is none of them couples samples: E0507
// when the strategy cuts the batch.
void append_losses(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics);

// The ops that `loss.count_op` needs, in order and with it: they read graph inputs and constants only.
std::vector<ir::OpId> count_ops(const ir::Model& model, const ir::LossInfo& loss);

}  // namespace piper::passes
