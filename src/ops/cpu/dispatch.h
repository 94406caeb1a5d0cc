// From a dtype at run time to a C++ type.
#pragma once

#include <cstdint>

#include "ir/types.h"

namespace piper::ops {

template <class T>
struct TypeTag {
  using type = T;
};

// The C++ type of a tag passed to a generic lambda: `using T = tag_type<decltype(tag)>`.
template <class Tag>
using tag_type = typename Tag::type;

// Calls fn(TypeTag<T>) for the dtypes that kernels compute in; returns fn's result, or a default one for bf16.
// Bool is one byte, 0 or 1.
template <class Fn>
auto visit_dtype(ir::DType dtype, const Fn& fn) -> decltype(fn(TypeTag<float>())) {
  switch (dtype) {
    case ir::DType::kF32: return fn(TypeTag<float>());
    case ir::DType::kF64: return fn(TypeTag<double>());
    case ir::DType::kI64: return fn(TypeTag<int64_t>());
    case ir::DType::kI32: return fn(TypeTag<int32_t>());
    case ir::DType::kBool: return fn(TypeTag<bool>());
    case ir::DType::kU8: return fn(TypeTag<uint8_t>());
    case ir::DType::kBF16: break;
  }
  return decltype(fn(TypeTag<float>()))();
}

// As visit_dtype, for f32 and f64 only.
template <class Fn>
auto visit_float(ir::DType dtype, const Fn& fn) -> decltype(fn(TypeTag<float>())) {
  switch (dtype) {
    case ir::DType::kF32: return fn(TypeTag<float>());
    case ir::DType::kF64: return fn(TypeTag<double>());
    default: return decltype(fn(TypeTag<float>()))();
  }
}

// For kernels that only move elements: calls fn with an unsigned integer of the dtype's size.
template <class Fn>
auto visit_size(ir::DType dtype, const Fn& fn) -> decltype(fn(TypeTag<uint8_t>())) {
  switch (ir::dtype_size(dtype)) {
    case 1: return fn(TypeTag<uint8_t>());
    case 2: return fn(TypeTag<uint16_t>());
    case 4: return fn(TypeTag<uint32_t>());
    default: return fn(TypeTag<uint64_t>());
  }
}

}  // namespace piper::ops
