// Vector functions in f32 for Highway files: included once per instruction set, inside foreach_target's loop, after
// hwy/highway.h. They follow libm at the edges: NaN in, NaN out; overflow to infinity.
#if defined(PIPER_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PIPER_VECTOR_MATH_INL_H_
#undef PIPER_VECTOR_MATH_INL_H_
#else
#define PIPER_VECTOR_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace piper::ops::vec::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// `value` where x is a number, else x.
template <class D, class V>
HWY_INLINE V keep_nan(D, V x, V value) {
  return hn::IfThenElse(hn::Eq(x, x), value, x);
}

template <class D, class V>
HWY_INLINE V exp_of(D d, V x) {
  // Highway's Exp wraps around above the range; 89 is already infinity.
  return keep_nan(d, x, hn::Exp(d, hn::Min(x, hn::Set(d, 89.0f))));
}

template <class D, class V>
HWY_INLINE V log_of(D d, V x) {
  const V inf = hn::Set(d, std::numeric_limits<float>::infinity());
  const V zero = hn::Zero(d);
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  y = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
  return keep_nan(d, x, y);
}

template <class D, class V>
HWY_INLINE V sigmoid_of(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_of(d, hn::Neg(x))));
}

// exp(2x) - 1 over exp(2x) + 1 loses digits near 0; below 0.6 a polynomial of its own.
template <class D, class V>
HWY_INLINE V tanh_of(D d, V x) {
  const V ax = hn::Min(hn::Abs(x), hn::Set(d, 10.0f));
  const V two = hn::Set(d, 2.0f);
  const V one = hn::Set(d, 1.0f);
  const V large = hn::Sub(one, hn::Div(two, hn::Add(hn::Exp(d, hn::Mul(ax, two)), one)));
  const V z = hn::Mul(ax, ax);
  V p = hn::Set(d, -0.0057430123f);
  for (float c : {0.0206714869f, -0.0537491217f, 0.133315489f, -0.333332866f}) p = hn::MulAdd(p, z, hn::Set(d, c));
  const V small = hn::MulAdd(hn::Mul(p, z), ax, ax);
  const V y = hn::IfThenElse(hn::Lt(ax, hn::Set(d, 0.6f)), small, large);
  return keep_nan(d, x, hn::CopySign(y, x));
}

// x P(x^2) / Q(x^2), fitted for the least relative error on [0, 3.92], where erf reaches 1 in f32.
template <class D, class V>
HWY_INLINE V erf_of(D d, V x) {
  const V limit = hn::Set(d, 3.92f);
  const V c = hn::Max(hn::Min(x, limit), hn::Neg(limit));
  const V z = hn::Mul(c, c);
  V p = hn::Set(d, 2.05008814e-06f);
  for (float k : {0.000284879818f, 0.00376553135f, 0.0527484529f, 0.190404624f, 1.12837911f}) {
    p = hn::MulAdd(p, z, hn::Set(d, k));
  }
  V q = hn::Set(d, 3.80915699e-05f);
  for (float k : {0.00116251304f, 0.0149690444f, 0.114108324f, 0.50207442f, 1.0f}) {
    q = hn::MulAdd(q, z, hn::Set(d, k));
  }
  const V y = hn::Div(hn::Mul(c, p), q);
  const V one = hn::Set(d, 1.0f);
  return keep_nan(d, x, hn::Max(hn::Min(y, one), hn::Neg(one)));
}

}  // namespace piper::ops::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
