#include "ops/cpu/vector_math.h"

#include <cstring>

// Four instruction sets besides the baseline are enough: newer AVX-512 ones add nothing that these loops use.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vector_math.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace piper::ops::vec::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using V32 = hn::Vec<F32>;

HWY_INLINE V32 set(float x) { return hn::Set(F32(), x); }

// One function: f(x), and g = f' from x or from y (kGradReadsY).
#define PIPER_UNARY(Name, from_y, value, derivative)      \
  struct Name {                                           \
    static constexpr bool kGradReadsY = from_y;           \
    static HWY_INLINE V32 f([[maybe_unused]] V32 x) {     \
      [[maybe_unused]] const F32 d;                       \
      return value;                                       \
    }                                                     \
    static HWY_INLINE V32 g([[maybe_unused]] V32 s) {     \
      [[maybe_unused]] const F32 d;                       \
      return derivative;                                  \
    }                                                     \
  };

// Derivative 1 above zero, 0 at or below.
HWY_INLINE V32 step(V32 x) { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(F32())), set(1.0f)); }
HWY_INLINE V32 sign(V32 x) { return hn::Sub(step(x), step(hn::Neg(x))); }

HWY_INLINE V32 normal_cdf(V32 x) {
  return hn::MulAdd(set(0.5f), erf_of(F32(), hn::Mul(x, set(0.70710678f))), set(0.5f));
}
HWY_INLINE V32 gelu_grad(V32 x) {
  const V32 pdf = hn::Mul(set(0.39894228f), exp_of(F32(), hn::Mul(set(-0.5f), hn::Mul(x, x))));
  return hn::MulAdd(x, pdf, normal_cdf(x));
}

// 0.5 (1 + tanh(u)) is sigmoid(2u).
HWY_INLINE V32 gelu_tanh_gate(V32 x) {
  const V32 inner = hn::MulAdd(hn::Mul(set(0.044715f), hn::Mul(x, x)), x, x);
  return sigmoid_of(F32(), hn::Mul(set(1.5957691f), inner));
}
HWY_INLINE V32 gelu_tanh_grad(V32 x) {
  const V32 gate = gelu_tanh_gate(x);
  const V32 slope = hn::Mul(set(1.5957691f), hn::MulAdd(set(0.134145f), hn::Mul(x, x), set(1.0f)));
  return hn::MulAdd(hn::Mul(x, slope), hn::Mul(gate, hn::Sub(set(1.0f), gate)), gate);
}

HWY_INLINE V32 silu_grad(V32 x) {
  const V32 s = sigmoid_of(F32(), x);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(set(1.0f), s), set(1.0f)));
}

HWY_INLINE V32 softplus(V32 x) {
  const F32 d;
  return hn::Add(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Zero(d)),
                 keep_nan(d, x, hn::Log1p(d, exp_of(d, hn::Neg(hn::Abs(x))))));
}

PIPER_UNARY(Abs, false, hn::Abs(x), sign(s))
PIPER_UNARY(Ceil, false, hn::Ceil(x), hn::Zero(d))
PIPER_UNARY(Erf, false, erf_of(d, x), hn::Mul(set(1.1283792f), exp_of(d, hn::Neg(hn::Mul(s, s)))))
PIPER_UNARY(Exp, true, exp_of(d, x), s)
PIPER_UNARY(Floor, false, hn::Floor(x), hn::Zero(d))
PIPER_UNARY(Gelu, false, hn::Mul(x, normal_cdf(x)), gelu_grad(s))
PIPER_UNARY(GeluTanh, false, hn::Mul(x, gelu_tanh_gate(x)), gelu_tanh_grad(s))
PIPER_UNARY(Log, false, log_of(d, x), hn::Div(set(1.0f), s))
PIPER_UNARY(Neg, false, hn::Neg(x), set(-1.0f))
PIPER_UNARY(Reciprocal, true, hn::Div(set(1.0f), x), hn::Neg(hn::Mul(s, s)))
// Not Max: a NaN must stay one.
PIPER_UNARY(Relu, true, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x), step(s))
PIPER_UNARY(Round, false, hn::Round(x), hn::Zero(d))
PIPER_UNARY(Sigmoid, true, sigmoid_of(d, x), hn::Mul(s, hn::Sub(set(1.0f), s)))
PIPER_UNARY(Silu, false, hn::Mul(x, sigmoid_of(d, x)), silu_grad(s))
PIPER_UNARY(Softplus, false, softplus(x), sigmoid_of(d, s))
PIPER_UNARY(Sqrt, true, hn::Sqrt(x), hn::Div(set(0.5f), s))
PIPER_UNARY(Tanh, true, tanh_of(d, x), hn::NegMulAdd(s, s, set(1.0f)))
#undef PIPER_UNARY

// Calls fn(functor) for the function; sine and cosine are not here (Highway's hold to 39,000 only).
template <class Fn>
HWY_INLINE void visit(Unary f, const Fn& fn) {
  switch (f) {
    case Unary::kAbs: return fn(Abs());
    case Unary::kCeil: return fn(Ceil());
    case Unary::kErf: return fn(Erf());
    case Unary::kExp: return fn(Exp());
    case Unary::kFloor: return fn(Floor());
    case Unary::kGelu: return fn(Gelu());
    case Unary::kGeluTanh: return fn(GeluTanh());
    case Unary::kLog: return fn(Log());
    case Unary::kNeg: return fn(Neg());
    case Unary::kReciprocal: return fn(Reciprocal());
    case Unary::kRelu: return fn(Relu());
    case Unary::kRound: return fn(Round());
    case Unary::kSigmoid: return fn(Sigmoid());
    case Unary::kSilu: return fn(Silu());
    case Unary::kSoftplus: return fn(Softplus());
    case Unary::kSqrt: return fn(Sqrt());
    case Unary::kTanh: return fn(Tanh());
    case Unary::kCos:
    case Unary::kSin: return;
  }
}

// Runs step(vector of in0, vector of in1) over n elements; the rest goes through a whole vector too, so that an
// element's value does not depend on where it stands. A stride of 0 repeats the first element.
template <class Step>
HWY_INLINE void loop2(const float* a, int64_t stride_a, const float* b, int64_t stride_b, float* y, int64_t n,
                      const Step& step_of) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V32 first_a = hn::Set(d, n > 0 ? *a : 0.0f);
  const V32 first_b = hn::Set(d, n > 0 ? *b : 0.0f);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V32 va = stride_a ? hn::LoadU(d, a + i) : first_a;
    const V32 vb = stride_b ? hn::LoadU(d, b + i) : first_b;
    hn::StoreU(step_of(va, vb), d, y + i);
  }
  if (i == n) return;
  HWY_ALIGN float ta[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN float tb[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t k = i; k < n; k++) {
    ta[k - i] = a[stride_a * k];
    tb[k - i] = b[stride_b * k];
  }
  hn::Store(step_of(hn::Load(d, ta), hn::Load(d, tb)), d, ta);
  for (int64_t k = i; k < n; k++) y[k] = ta[k - i];
}

void run_unary(Unary f, const float* x, float* y, int64_t n) {
  visit(f, [&](auto fn) HWY_ATTR {
    loop2(x, 1, x, 0, y, n, [](V32 v, V32) HWY_ATTR { return decltype(fn)::f(v); });
  });
}

void run_unary_grad(Unary f, const float* saved, const float* dy, float* dx, int64_t n) {
  visit(f, [&](auto fn) HWY_ATTR {
    loop2(saved, 1, dy, 1, dx, n, [](V32 s, V32 g) HWY_ATTR { return hn::Mul(decltype(fn)::g(s), g); });
  });
}

bool reads_output(Unary f) {
  bool reads = false;
  visit(f, [&](auto fn) { reads = decltype(fn)::kGradReadsY; });
  return reads;
}

// As torch: NaN where either is NaN. (Not by Ne, which is false for NaN on some instruction sets.)
HWY_INLINE V32 larger(V32 a, V32 b) { return keep_nan(F32(), a, hn::IfThenElse(hn::Gt(a, b), a, b)); }
HWY_INLINE V32 smaller(V32 a, V32 b) { return keep_nan(F32(), a, hn::IfThenElse(hn::Lt(a, b), a, b)); }

void run_binary(Binary f, const float* a, int64_t sa, const float* b, int64_t sb, float* y, int64_t n) {
  auto loop = [&](auto step_of) HWY_ATTR { loop2(a, sa, b, sb, y, n, step_of); };
  switch (f) {
    case Binary::kAdd: return loop([](V32 u, V32 v) HWY_ATTR { return hn::Add(u, v); });
    case Binary::kSub: return loop([](V32 u, V32 v) HWY_ATTR { return hn::Sub(u, v); });
    case Binary::kMul: return loop([](V32 u, V32 v) HWY_ATTR { return hn::Mul(u, v); });
    case Binary::kDiv: return loop([](V32 u, V32 v) HWY_ATTR { return hn::Div(u, v); });
    case Binary::kMax: return loop([](V32 u, V32 v) HWY_ATTR { return larger(u, v); });
    case Binary::kMin: return loop([](V32 u, V32 v) HWY_ATTR { return smaller(u, v); });
  }
}

void run_add_scaled(float* y, const float* x, float scale, int64_t n) {
  const V32 s = set(scale);
  loop2(y, 1, x, 1, y, n, [s](V32 u, V32 v) HWY_ATTR { return hn::MulAdd(s, v, u); });
}

// Folds x into four vectors, then lanes, then the rest, always in this order.
template <class Fold>
HWY_INLINE float fold(const float* x, int64_t n, float start, const Fold& fold_of) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V32 a0 = set(start), a1 = a0, a2 = a0, a3 = a0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a0 = fold_of(a0, hn::LoadU(d, x + i));
    a1 = fold_of(a1, hn::LoadU(d, x + i + lanes));
    a2 = fold_of(a2, hn::LoadU(d, x + i + 2 * lanes));
    a3 = fold_of(a3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a0 = fold_of(a0, hn::LoadU(d, x + i));
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(set(start), d, rest);
  for (int64_t k = i; k < n; k++) rest[k - i] = x[k];
  a1 = fold_of(a1, hn::Load(d, rest));
  hn::Store(fold_of(fold_of(a0, a1), fold_of(a2, a3)), d, rest);
  V32 total = set(rest[0]);
  for (int64_t k = 1; k < lanes; k++) total = fold_of(total, set(rest[k]));
  return hn::GetLane(total);
}

float run_sum(const float* x, int64_t n) {
  return fold(x, n, 0.0f, [](V32 a, V32 b) HWY_ATTR { return hn::Add(a, b); });
}
float run_max(const float* x, int64_t n) {
  return fold(x, n, -std::numeric_limits<float>::infinity(), [](V32 a, V32 b) HWY_ATTR { return larger(a, b); });
}
float run_min(const float* x, int64_t n) {
  return fold(x, n, std::numeric_limits<float>::infinity(), [](V32 a, V32 b) HWY_ATTR { return smaller(a, b); });
}

float run_exp_shifted(const float* x, float shift, float* y, int64_t n) {
  const V32 s = set(shift);
  loop2(x, 1, x, 0, y, n, [s](V32 v, V32) HWY_ATTR { return exp_of(F32(), hn::Sub(v, s)); });
  return run_sum(y, n);
}

using U64 = hn::ScalableTag<uint64_t>;
using V64 = hn::Vec<U64>;

// The product of two words in 64-bit lanes.
HWY_INLINE V64 product(V64 a, V64 b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(U64(), hn::GetLane(a) * hn::GetLane(b));
#else
  const hn::Repartition<uint32_t, U64> d;
  return hn::MulEven(hn::BitCast(d, a), hn::BitCast(d, b));
#endif
}

// A block per 64-bit lane, each counter word in the lane's low half: the full product of two words is then one
// instruction. See philox.h for the scalar form.
void run_philox_words(uint64_t key, uint64_t sample, uint64_t first_block, int64_t blocks, uint32_t* words) {
  const U64 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, 0xFFFFFFFFu), m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  HWY_ALIGN uint64_t rest[2 * HWY_MAX_BYTES / sizeof(uint64_t)];
  for (int64_t b = 0; b < blocks; b += lanes) {
    const auto index = hn::Iota(d, first_block + static_cast<uint64_t>(b));
    auto c0 = hn::And(index, low), c1 = hn::ShiftRight<32>(index);
    auto c2 = hn::Set(d, sample & 0xFFFFFFFFu), c3 = hn::Set(d, sample >> 32);
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; round++) {
      const auto p0 = product(c0, m0);
      const auto p1 = product(c2, m1);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
      c1 = hn::And(p1, low);
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
      c3 = hn::And(p0, low);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const auto first = hn::Or(c0, hn::ShiftLeft<32>(c1)), second = hn::Or(c2, hn::ShiftLeft<32>(c3));
    const int64_t many = blocks - b < lanes ? blocks - b : lanes;
    hn::StoreInterleaved2(first, second, d, rest);
    std::memcpy(words + 4 * b, rest, static_cast<size_t>(many) * 16);
  }
}

}  // namespace piper::ops::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cmath>

namespace piper::ops::vec {

HWY_EXPORT(run_unary);
HWY_EXPORT(run_unary_grad);
HWY_EXPORT(run_binary);
HWY_EXPORT(run_add_scaled);
HWY_EXPORT(run_sum);
HWY_EXPORT(run_max);
HWY_EXPORT(run_min);
HWY_EXPORT(run_exp_shifted);
HWY_EXPORT(run_philox_words);
HWY_EXPORT(reads_output);

bool parse_unary(std::string_view op, std::string_view approximate, Unary* out) {
  static constexpr std::pair<std::string_view, Unary> kNames[] = {
      {"Abs", Unary::kAbs},     {"Ceil", Unary::kCeil},       {"Cos", Unary::kCos},
      {"Erf", Unary::kErf},     {"Exp", Unary::kExp},         {"Floor", Unary::kFloor},
      {"Gelu", Unary::kGelu},   {"Log", Unary::kLog},         {"Neg", Unary::kNeg},
      {"Relu", Unary::kRelu},   {"Reciprocal", Unary::kReciprocal}, {"Round", Unary::kRound},
      {"Sigmoid", Unary::kSigmoid}, {"Silu", Unary::kSilu},   {"Sin", Unary::kSin},
      {"Softplus", Unary::kSoftplus}, {"Sqrt", Unary::kSqrt}, {"Tanh", Unary::kTanh},
  };
  for (const auto& [name, f] : kNames) {
    if (name != op) continue;
    *out = f == Unary::kGelu && approximate == "tanh" ? Unary::kGeluTanh : f;
    return true;
  }
  return false;
}

bool grad_reads_output(Unary f) { return HWY_DYNAMIC_DISPATCH(reads_output)(f); }

void unary(Unary f, const float* x, float* y, int64_t n) {
  if (f != Unary::kSin && f != Unary::kCos) return HWY_DYNAMIC_DISPATCH(run_unary)(f, x, y, n);
  for (int64_t i = 0; i < n; i++) y[i] = f == Unary::kSin ? std::sin(x[i]) : std::cos(x[i]);
}

void unary_grad(Unary f, const float* saved, const float* dy, float* dx, int64_t n) {
  if (f != Unary::kSin && f != Unary::kCos) return HWY_DYNAMIC_DISPATCH(run_unary_grad)(f, saved, dy, dx, n);
  for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * (f == Unary::kSin ? std::cos(saved[i]) : -std::sin(saved[i]));
}

void binary(Binary f, const float* a, int64_t stride_a, const float* b, int64_t stride_b, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(run_binary)(f, a, stride_a, b, stride_b, y, n);
}
void add_scaled(float* y, const float* x, float scale, int64_t n) {
  HWY_DYNAMIC_DISPATCH(run_add_scaled)(y, x, scale, n);
}
float sum(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(run_sum)(x, n); }
float max(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(run_max)(x, n); }
float min(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(run_min)(x, n); }
float exp_shifted(const float* x, float shift, float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(run_exp_shifted)(x, shift, y, n);
}
void philox_words(uint64_t key, uint64_t sample, uint64_t first_block, int64_t blocks, uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(run_philox_words)(key, sample, first_block, blocks, words);
}

}  // namespace piper::ops::vec

#endif  // HWY_ONCE
