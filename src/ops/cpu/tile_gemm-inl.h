// Small matrix products out of vector registers, for kernels that multiply pieces that are in the cache already and
// cannot afford a library call each: C[M,N] = alpha * A B (+ C). B and C are row-major; A has any strides, so that a
// transposed A costs nothing. Compiled once for each instruction set, like vector-inl.h.

#if defined(PIPER_OPS_CPU_TILE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PIPER_OPS_CPU_TILE_GEMM_INL_H_
#undef PIPER_OPS_CPU_TILE_GEMM_INL_H_
#else
#define PIPER_OPS_CPU_TILE_GEMM_INL_H_
#endif

#include <algorithm>

#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {

template <class T>
struct TileGemm {
  int64_t m, n, k;
  T alpha;
  const T* a;
  int64_t a_row, a_col;  // strides of A
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  bool accumulate;
};

// Rows [i, i + kRows) and kVectors vectors from column j.
template <int kRows, int kVectors, class T>
HWY_INLINE void tile(const TileGemm<T>& g, int64_t i, int64_t j) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VecOf<decltype(d)> sum[kRows][kVectors];
  for (int r = 0; r < kRows; r++) {
    for (int v = 0; v < kVectors; v++) sum[r][v] = hn::Zero(d);
  }
  const T* a = g.a + i * g.a_row;
  const T* b = g.b + j;
  for (int64_t k = 0; k < g.k; k++) {
    VecOf<decltype(d)> row[kVectors];
    for (int v = 0; v < kVectors; v++) row[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < kRows; r++) {
      const auto x = hn::Set(d, a[r * g.a_row]);
      for (int v = 0; v < kVectors; v++) sum[r][v] = hn::MulAdd(x, row[v], sum[r][v]);
    }
    a += g.a_col;
    b += g.b_row;
  }
  const auto alpha = hn::Set(d, g.alpha);
  for (int r = 0; r < kRows; r++) {
    T* c = g.c + (i + r) * g.c_row + j;
    for (int v = 0; v < kVectors; v++) {
      auto value = hn::Mul(sum[r][v], alpha);
      if (g.accumulate) value = hn::Add(value, hn::LoadU(d, c + v * lanes));
      hn::StoreU(value, d, c + v * lanes);
    }
  }
}

template <int kVectors, class T>
HWY_INLINE void tile_panel(const TileGemm<T>& g, int64_t j) {
  int64_t i = 0;
  for (; i + 6 <= g.m; i += 6) tile<6, kVectors>(g, i, j);
  if (i + 4 <= g.m) tile<4, kVectors>(g, i, j), i += 4;
  if (i + 2 <= g.m) tile<2, kVectors>(g, i, j), i += 2;
  if (i < g.m) tile<1, kVectors>(g, i, j);
}

template <class T>
HWY_NOINLINE void tile_gemm(const TileGemm<T>& g) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
#if HWY_TARGET <= HWY_AVX3  // 32 registers
  for (; j + 4 * lanes <= g.n; j += 4 * lanes) tile_panel<4>(g, j);
#endif
  for (; j + 2 * lanes <= g.n; j += 2 * lanes) tile_panel<2>(g, j);
  for (; j + lanes <= g.n; j += lanes) tile_panel<1>(g, j);
  for (int64_t i = 0; i < g.m; i++) {
    for (int64_t t = j; t < g.n; t++) {
      T sum = 0;
      for (int64_t k = 0; k < g.k; k++) sum += g.a[i * g.a_row + k * g.a_col] * g.b[k * g.b_row + t];
      T& c = g.c[i * g.c_row + t];
      c = g.accumulate ? c + g.alpha * sum : g.alpha * sum;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#endif  // include guard
