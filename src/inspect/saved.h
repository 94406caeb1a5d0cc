// How much of a model's forward is kept for its backward.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/model.h"
#include "ir/strategy.h"

namespace piper::inspect {

// Bytes of one sample that the backward of `loss` reads, by the operation that makes them; operations of `model` only.
// Nothing when the loss does not fit the model, or an operation has no gradient.
std::optional<std::vector<int64_t>> saved_bytes(const ir::Model& model, const ir::LossTerm& loss);

}  // namespace piper::inspect
