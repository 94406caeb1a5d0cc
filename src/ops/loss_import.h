// Losses that ONNX has as one node, as canonical operations.
#pragma once

#include "ops/op.h"

namespace piper::ops {

// SoftmaxCrossEntropyLoss: scores[N,C,...], labels[N,...], weights[C]? -> loss, log_prob?; every reduction.
Expected<void> import_softmax_cross_entropy(ImportContext& context);
// NegativeLogLikelihoodLoss: log_prob[N,C,...], labels[N,...], weights[C]? -> loss; every reduction.
Expected<void> import_negative_log_likelihood(ImportContext& context);

}  // namespace piper::ops
