// Sums over rows, in an order that depends on the number of rows only: rows are summed in blocks of kRowBlock into
// partial sums [blocks, n], and these in order of the blocks.
#pragma once

#include <algorithm>
#include <memory>

#include "ops/cpu/ranges.h"
#include "ops/kernel.h"

namespace piper::ops {

constexpr int64_t kRowBlock = 32;

// out[j] (+)= sum over blocks of partial[block, j].
template <class T>
void sum_partials(const T* partial, int64_t blocks, int64_t n, T* out, bool accumulate) {
  parallel_ranges(n, blocks, [&](int64_t begin, int64_t end) {
    if (!accumulate) std::fill(out + begin, out + end, T(0));
    // Partial sums are added among themselves first: a gradient that is large already would swallow them.
    constexpr int64_t kWidth = 256;
    for (int64_t j0 = begin; j0 < end; j0 += kWidth) {
      T sum[kWidth] = {};
      int64_t width = std::min(kWidth, end - j0);
      for (int64_t b = 0; b < blocks; b++) {
        for (int64_t j = 0; j < width; j++) sum[j] += partial[b * n + j0 + j];
      }
      for (int64_t j = 0; j < width; j++) out[j0 + j] += sum[j];
    }
  });
}

// x[rows, n] -> sums over rows [n]; nullptr for a type that is neither f32 nor f64.
std::unique_ptr<Kernel> make_column_sums(ir::DType dtype, int64_t rows, int64_t n, bool accumulate);

}  // namespace piper::ops
