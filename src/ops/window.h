// Sliding windows over the spatial dims of x[N, C, D1...Dk], as convolutions and poolings have
// them: attributes `strides`, `dilations` (a number per spatial dim) and `pads` (all begins, then
// all ends). For both sides of an op.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ir/attributes.h"

namespace piper::ops {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, begin, end;  // begin, end: padding

  size_t rank() const { return kernel.size(); }
  // Elements from the first tap to the last.
  int64_t extent(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
  // The taps [first, end) of position `o` that are on elements [low, high); those of the padding count from below 0.
  std::pair<int64_t, int64_t> taps(size_t i, int64_t o, int64_t low, int64_t high) const {
    const int64_t start = o * strides[i] - begin[i], d = dilations[i];
    const int64_t first = std::max<int64_t>(0, (low - start + d - 1) / d);
    const int64_t end = start >= high ? 0 : std::min(kernel[i], (high - start + d - 1) / d);
    return {first, std::max(first, end)};
  }
  // Positions over `size` elements; 0 when it does not fit. `ceil`: the last position may hang over
  // the end padding, but must start before it.
  int64_t positions(size_t i, int64_t size, bool ceil = false) const {
    const int64_t room = size + begin[i] + end[i] - extent(i);
    if (room < 0) return 0;
    int64_t count = (room + (ceil ? strides[i] - 1 : 0)) / strides[i] + 1;
    if (ceil && (count - 1) * strides[i] >= size + begin[i]) count--;
    return count;
  }
};

inline Window window_of(const ir::Attrs& attrs, std::vector<int64_t> kernel) {
  const auto k = static_cast<std::ptrdiff_t>(kernel.size());
  const std::vector<int64_t> pads = attrs.ints("pads");
  return {std::move(kernel),
          attrs.ints("strides"),
          attrs.ints("dilations"),
          {pads.begin(), pads.begin() + k},
          {pads.begin() + k, pads.end()}};
}

}  // namespace piper::ops
