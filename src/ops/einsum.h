// Einsum as transposes, products and sums.
#pragma once

#include "ops/op.h"

namespace piper::ops {

// Any number of operands, from left to right; `...`, repeated labels, output given or implied.
Expected<void> import_einsum(ImportContext& context);

}  // namespace piper::ops
