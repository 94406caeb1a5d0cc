// Windows on the compiler's side: from an ONNX node's attributes, and checked in shape rules.
#pragma once

#include <vector>

#include "ops/op.h"
#include "ops/window.h"

namespace piper::ops {

// Sizes above are refused: products of a few of them stay far inside 64 bits.
constexpr int64_t kLargestSize = int64_t{1} << 30;

// The dims after batch and channel, which must not depend on the batch size.
Expected<std::vector<int64_t>> spatial_dims(const TensorType& x);

// The window of a node that has `strides`, `dilations`, `pads` and `auto_pad`, over spatial dims
// `size`. An empty `kernel` means the attribute `kernel_shape`.
Expected<Window> import_window(ImportContext& context, const std::vector<int64_t>& size, std::vector<int64_t> kernel);

// Attributes `strides`, `dilations` and `pads`.
void set_window(const Window& window, Attrs* attrs);

// The window of an op's attributes, checked: `kernel` has a positive size per spatial dim and so
// have the attributes.
Expected<Window> checked_window(const Attrs& attrs, std::vector<int64_t> kernel, size_t spatial);

}  // namespace piper::ops
