// What the vector kernels share, compiled once for each instruction set (Highway's foreach_target). Include it after
// foreach_target.h; names are in piper::ops::HWY_NAMESPACE. Everything works for f32 and f64.

// Highway's include guard for such files: it toggles so that each instruction set sees the file once.
#if defined(PIPER_OPS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PIPER_OPS_CPU_VECTOR_INL_H_
#undef PIPER_OPS_CPU_VECTOR_INL_H_
#else
#define PIPER_OPS_CPU_VECTOR_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

// On lambdas that are handed to the walkers below: the loop is only fast when the body is inside.
#undef PIPER_INSIDE
#define PIPER_INSIDE HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using VecOf = hn::Vec<D>;
template <class D>
using LaneOf = hn::TFromD<D>;

// `count` elements from p, at most a vector; the lanes after them hold `rest`.
template <class D>
HWY_INLINE VecOf<D> load_some(D d, const LaneOf<D>* p, int64_t count, LaneOf<D> rest = 0) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (HWY_LIKELY(count == lanes)) return hn::LoadU(d, p);
  LaneOf<D> buffer[HWY_MAX_BYTES / sizeof(LaneOf<D>)];
  for (int64_t i = 0; i < lanes; i++) buffer[i] = i < count ? p[i] : rest;
  return hn::LoadU(d, buffer);
}

template <class D>
HWY_INLINE void store_some(D d, VecOf<D> v, LaneOf<D>* p, int64_t count) {
  if (HWY_LIKELY(count == static_cast<int64_t>(hn::Lanes(d)))) return hn::StoreU(v, d, p);
  LaneOf<D> buffer[HWY_MAX_BYTES / sizeof(LaneOf<D>)];
  hn::StoreU(v, d, buffer);
  for (int64_t i = 0; i < count; i++) p[i] = buffer[i];
}

// body(i, count) for vectors of [0, n): count is a full vector but for the last one.
template <class D, class Body>
HWY_INLINE void walk(D d, int64_t n, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}

// Sum over [0, n) of what term(i, count) returns; four sums run side by side, as one would wait for itself.
// term must give 0 in lanes at `count` and after.
template <class D, class Term>
HWY_INLINE LaneOf<D> sum_over(D d, int64_t n, const Term& term) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  VecOf<D> s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, term(i, lanes));
    s1 = hn::Add(s1, term(i + lanes, lanes));
    s2 = hn::Add(s2, term(i + 2 * lanes, lanes));
    s3 = hn::Add(s3, term(i + 3 * lanes, lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, term(i, lanes));
  if (i < n) s1 = hn::Add(s1, term(i, n - i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// The largest of x[0, n); -infinity when there is none. NaN may be skipped.
template <class D>
HWY_INLINE LaneOf<D> max_over(D d, const LaneOf<D>* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const LaneOf<D> none = -HUGE_VALF;
  VecOf<D> m0 = hn::Set(d, none), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(hn::LoadU(d, x + i), m0);
    m1 = hn::Max(hn::LoadU(d, x + i + lanes), m1);
    m2 = hn::Max(hn::LoadU(d, x + i + 2 * lanes), m2);
    m3 = hn::Max(hn::LoadU(d, x + i + 3 * lanes), m3);
  }
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(hn::LoadU(d, x + i), m0);
  if (i < n) m1 = hn::Max(load_some(d, x + i, n - i, none), m1);
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// e^x for x <= 0 or a little above it, to about one unit in the last place. Below the smallest normal number it is 0;
// NaN stays NaN (a diverged run must show), which Highway's own does not do. In f32 it also has half the operations.
template <class D>
HWY_INLINE VecOf<D> exp_f32(D d, VecOf<D> x) {
  const hn::RebindToSigned<D> bits;
  const auto lowest = hn::Set(d, -87.3f);
  // Adding 1.5 * 2^23 rounds to an integer n and leaves it in the low bits, from where it goes to the exponent.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(hn::Max(lowest, x), hn::Set(d, 1.44269504088896341f), magic);
  const auto n = hn::Sub(shifted, magic);
  const auto power = hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(bits, shifted)), hn::Set(bits, 0x3F800000)));
  // x - n log 2 in two parts, the first of which is exact; then the polynomial of Cephes' expf.
  const auto r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(p, power));
}
template <class D>
HWY_INLINE VecOf<D> exp_low(D d, VecOf<D> x) {
  if constexpr (sizeof(LaneOf<D>) == 4) {
    return exp_f32(d, x);
  } else {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  }
}

// 1 / (1 + e^-x) for any x.
template <class D>
HWY_INLINE VecOf<D> sigmoid(D d, VecOf<D> x) {
  const VecOf<D> one = hn::Set(d, LaneOf<D>(1));
  VecOf<D> e = exp_low(d, hn::Neg(hn::Abs(x)));
  VecOf<D> low = hn::Div(e, hn::Add(one, e));  // of -|x|
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), low, hn::Sub(one, low));
}

}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#endif  // include guard
