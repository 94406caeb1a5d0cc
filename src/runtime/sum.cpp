#include "runtime/sum.h"

#include <algorithm>
#include <cstring>

namespace piper::runtime {

namespace {

// Small enough to stay in the first-level cache while all parts are added to it.
constexpr size_t kBlock = 1024;

template <class T>
void sum_typed(const std::vector<const void*>& parts, T* out, size_t elements) {
  T block[kBlock];
  for (size_t begin = 0; begin < elements; begin += kBlock) {
    const size_t count = std::min(kBlock, elements - begin);
    std::memcpy(block, static_cast<const T*>(parts[0]) + begin, count * sizeof(T));
    for (size_t p = 1; p < parts.size(); p++) {
      const T* part = static_cast<const T*>(parts[p]) + begin;
      for (size_t i = 0; i < count; i++) block[i] += part[i];
    }
    std::memcpy(out + begin, block, count * sizeof(T));
  }
}

}  // namespace

void sum_in_order(const std::vector<const void*>& parts, void* out, size_t elements, ir::DType dtype) {
  if (dtype == ir::DType::kF64) {
    sum_typed(parts, static_cast<double*>(out), elements);
  } else {
    sum_typed(parts, static_cast<float*>(out), elements);
  }
}

Slice slice_of(size_t elements, size_t count, size_t index) {
  constexpr size_t kAlign = 16;
  const size_t blocks = (elements + kAlign - 1) / kAlign;
  auto start = [&](size_t i) { return std::min(elements, blocks * i / count * kAlign); };
  return {start(index), start(index + 1)};
}

}  // namespace piper::runtime
