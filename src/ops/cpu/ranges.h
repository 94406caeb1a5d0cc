// Cutting rows over OpenMP's threads, one contiguous range each: for kernels whose rows don't depend on each other.
// What happens to a row may not depend on where the cuts fall; sums over rows go through fixed blocks (column_sums.h).
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace piper::ops {

// fn(begin, end) over [0, n); `cost` is about the elements that one item touches: little work stays on the calling
// thread.
template <class Fn>
void parallel_ranges(int64_t n, int64_t cost, const Fn& fn) {
  constexpr int64_t kMinCost = 1 << 15;
  int64_t pieces = std::min<int64_t>({omp_get_max_threads(), n, n * std::max<int64_t>(cost, 1) / kMinCost});
  if (pieces <= 1 || omp_in_parallel()) {
    if (n > 0) fn(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(pieces))
  {
    int64_t piece = omp_get_thread_num(), count = omp_get_num_threads();
    int64_t begin = n * piece / count, end = n * (piece + 1) / count;
    if (begin < end) fn(begin, end);
  }
}

// How many blocks of `block` items a sum over n items is cut into; depends on nothing else.
inline int64_t fixed_blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

}  // namespace piper::ops
