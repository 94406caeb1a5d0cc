// Parallel copies of dense memory.
#pragma once

#include <cstring>
#include <memory>

#include "ops/cpu/parallel.h"
#include "ops/kernel.h"

namespace piper::ops {

constexpr int64_t kCopyBytes = 1 << 16;

inline void copy_bytes(void* to, const void* from, int64_t bytes) {
  parallel_pieces(bytes, kCopyBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<size_t>(end - begin));
  });
}

inline void zero_bytes(void* to, int64_t bytes) {
  parallel_pieces(bytes, kCopyBytes, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(to) + begin, 0, static_cast<size_t>(end - begin));
  });
}

// The kernel that copies input 0 to output 0 as it lies in memory.
inline std::unique_ptr<Kernel> make_copy(const KernelSpec& spec) {
  const int64_t bytes = ir::num_elements(spec.inputs[0].shape) * ir::dtype_size(spec.inputs[0].dtype);
  return kernel_from([=](const void* const* in, void* const* out, const RunContext&) { copy_bytes(out[0], in[0], bytes); });
}

}  // namespace piper::ops
