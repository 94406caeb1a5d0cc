// Sums of the collectives: always member 0 + member 1 + ..., whatever the transport and the algorithm, so that the same
// values give the same bits everywhere.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/types.h"

namespace piper::runtime {

// out[i] = parts[0][i] + parts[1][i] + ... in that order. `out` may be one of the parts. dtype f32 or f64.
void sum_in_order(const std::vector<const void*>& parts, void* out, size_t elements, ir::DType dtype);

// Whether a transport can reduce elements of this type.
inline bool is_summable(ir::DType dtype) { return dtype == ir::DType::kF32 || dtype == ir::DType::kF64; }

// Elements [begin, end) of part `index` when `elements` are cut into `count` parts of nearly equal size; parts start at
// multiples of 16 elements, so that they are aligned as well as the whole is.
struct Slice {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};
Slice slice_of(size_t elements, size_t count, size_t index);

}  // namespace piper::runtime
