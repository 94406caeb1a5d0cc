// Parallel loops of the CPU kernels. Work is cut at places that depend on sizes alone, never on the number of threads,
// so results have the same bits on any number of them.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace piper::ops {

// Elements a task of an elementwise kernel handles: small enough for the first-level cache.
constexpr int64_t kGrain = 4096;

// Calls fn(begin, end) for consecutive pieces of [0, n) of `grain` elements (the last one smaller).
template <class Fn>
void parallel_pieces(int64_t n, int64_t grain, const Fn& fn) {
  const int64_t pieces = (n + grain - 1) / grain;
  // A parallel region costs some microseconds: not for little work.
  if (pieces <= 2 || omp_get_max_threads() == 1) {
    for (int64_t p = 0; p < pieces; p++) fn(p * grain, std::min(n, (p + 1) * grain));
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < pieces; p++) fn(p * grain, std::min(n, (p + 1) * grain));
}

// As parallel_pieces over rows of `row` elements each, with pieces of whole rows of about kGrain elements.
template <class Fn>
void parallel_rows(int64_t rows, int64_t row, const Fn& fn) {
  parallel_pieces(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, row)), fn);
}

}  // namespace piper::ops
