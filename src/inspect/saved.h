// How much of a model's forward is kept for its backward.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "ir/model.h"
#include "ir/strategy.h"

namespace piper::inspect {

// Bytes of one sample that the backward of `loss` reads, by the operation that makes them; operations of `model` only.
// Nothing when the loss does not fit the model, or an operation has no gradient.
std::optional<std::vector<int64_t>> saved_bytes(const ir::Model& model, const ir::LossTerm& loss);

// The value whose memory a value shares: reshapes cost nothing, as in the lowering of chunks. Values of `stop` have
// memory of their own.
ir::ValueId memory_of(const ir::Model& model, ir::ValueId v, const std::set<ir::ValueId>& stop);

}  // namespace piper::inspect
