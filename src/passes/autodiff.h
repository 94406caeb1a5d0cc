// Reverse-mode differentiation of one chunk: appends gradient ops to the model and lists them as the chunk's backward.
#pragma once

#include <vector>

#include "ir/dag.h"
#include "support/diagnostics.h"

namespace piper::passes {

// needs_gradient[v]: a float value that depends on a trainable parameter.
std::vector<char> values_needing_gradient(const ir::Model& model);

// Differentiates chunk `id`; chunks that read its outputs must have been differentiated before. Fills backward,
// gradients_in, gradients_out and param_gradients. An op without a gradient rule on the way is E0509.
void differentiate_chunk(ir::TrainingDag& dag, ir::ChunkId id, const std::vector<char>& needs_gradient,
                         support::Diagnostics& diagnostics);

}  // namespace piper::passes
