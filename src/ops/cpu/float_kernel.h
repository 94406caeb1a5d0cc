// Making kernels that exist for f32 and f64.
#pragma once

#include <memory>

#include "ops/kernel.h"

namespace piper::ops {

// Make<float>(spec) or Make<double>(spec) by the type of the first input; nullptr for other types.
template <template <class> class Make>
std::unique_ptr<Kernel> make_float_kernel(const KernelSpec& spec) {
  if (spec.inputs[0].dtype == ir::DType::kF32) return std::make_unique<Make<float>>(spec);
  if (spec.inputs[0].dtype == ir::DType::kF64) return std::make_unique<Make<double>>(spec);
  return nullptr;
}

inline bool has_input(const KernelSpec& spec, size_t i) { return i < spec.inputs.size() && spec.inputs[i].present; }

// Rows and their length: the dims before and from `axis` (which counts from the end) of the first input.
struct RowExtent {
  int64_t rows = 1, n = 1;
  explicit RowExtent(const KernelSpec& spec) {
    const std::vector<int64_t>& shape = spec.inputs[0].shape;
    size_t axis = shape.size() + static_cast<size_t>(spec.attrs.i("axis", -1));
    for (size_t i = 0; i < shape.size(); i++) (i < axis ? rows : n) *= shape[i];
  }
};

}  // namespace piper::ops
