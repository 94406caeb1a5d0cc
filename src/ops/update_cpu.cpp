// Optimizer updates and the sum of squares on the CPU. Updates treat every element alike; the sum goes through blocks
// that depend on the length only. The arithmetic follows torch.optim step by step, in f32.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/update_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/vector-inl.h"
#include "ops/update.h"

#ifndef PIPER_OPS_UPDATE_ARGS
#define PIPER_OPS_UPDATE_ARGS
namespace piper::ops {
// The numbers of a step as its loop uses them.
struct SgdFactors {
  float scale, lr, decay, momentum;
  bool first, nesterov;
};
struct AdamFactors {
  float scale, keep, decay;  // w *= keep (decoupled decay); g += decay * w
  float beta2, one_minus_beta1, one_minus_beta2;
  float step_size, root_correction2, eps;
};
}  // namespace piper::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

void sgd_range(float* w, const float* g, float* m, int64_t n, const SgdFactors& f) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, f.scale), lr = hn::Set(d, f.lr), decay = hn::Set(d, f.decay);
  const auto momentum = hn::Set(d, f.momentum);
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto x = load_some(d, w + i, count);
    auto v = hn::MulAdd(decay, x, hn::Mul(load_some(d, g + i, count), scale));
    if (m) {
      const auto buffer = f.first ? v : hn::MulAdd(momentum, load_some(d, m + i, count), v);
      store_some(d, buffer, m + i, count);
      v = f.nesterov ? hn::MulAdd(momentum, buffer, v) : buffer;
    }
    store_some(d, hn::NegMulAdd(lr, v, x), w + i, count);
  });
}

void adam_range(float* w, const float* g, float* m, float* v, int64_t n, const AdamFactors& f) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, f.scale), keep = hn::Set(d, f.keep), decay = hn::Set(d, f.decay);
  const auto c1 = hn::Set(d, f.one_minus_beta1), b2 = hn::Set(d, f.beta2), c2 = hn::Set(d, f.one_minus_beta2);
  const auto step = hn::Set(d, f.step_size), root = hn::Set(d, f.root_correction2), eps = hn::Set(d, f.eps);
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    auto x = load_some(d, w + i, count);
    const auto grad = hn::MulAdd(decay, x, hn::Mul(load_some(d, g + i, count), scale));
    x = hn::Mul(x, keep);
    const auto old = load_some(d, m + i, count);
    const auto first = hn::MulAdd(c1, hn::Sub(grad, old), old);
    const auto second = hn::MulAdd(hn::Mul(grad, grad), c2, hn::Mul(load_some(d, v + i, count), b2));
    const auto below = hn::Add(hn::Div(hn::Sqrt(second), root), eps);
    store_some(d, first, m + i, count);
    store_some(d, second, v + i, count);
    store_some(d, hn::NegMulAdd(step, hn::Div(first, below), x), w + i, count);
  });
}

// Sixteen sums side by side whatever the vectors are, so that every machine adds in the same order.
double squares_block(const float* g, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  constexpr int64_t kLanes = 16, kVectors = kLanes / static_cast<int64_t>(hn::MaxLanes(d));
  const int64_t lanes = kLanes / kVectors;
  VecOf<decltype(d)> sum[kVectors];
  for (auto& v : sum) v = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t v = 0; v < kVectors; v++) {
      const auto x = hn::PromoteTo(d, hn::LoadU(narrow, g + i + v * lanes));
      sum[v] = hn::Add(sum[v], hn::Mul(x, x));  // the square is exact, fused or not
    }
  }
  double sums[kLanes], total = 0;
  for (int64_t v = 0; v < kVectors; v++) hn::StoreU(sum[v], d, sums + v * lanes);
  for (int64_t j = 0; i < n; i++, j++) sums[j] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  for (double x : sums) total += x;
  return total;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

namespace {

HWY_EXPORT(sgd_range);
HWY_EXPORT(adam_range);
HWY_EXPORT(squares_block);

// decay: of the gradient (Adam) or, decoupled, of the weight (AdamW).
AdamFactors adam_factors(const UpdateStep& s, bool decoupled) {
  double correction1 = 1 - std::pow(s.beta1, static_cast<double>(s.t));
  double correction2 = 1 - std::pow(s.beta2, static_cast<double>(s.t));
  AdamFactors f;
  f.scale = static_cast<float>(s.scale);
  f.keep = decoupled ? static_cast<float>(1 - s.lr * s.weight_decay) : 1.0f;
  f.decay = decoupled ? 0.0f : static_cast<float>(s.weight_decay);
  f.beta2 = static_cast<float>(s.beta2);
  f.one_minus_beta1 = static_cast<float>(1 - s.beta1);
  f.one_minus_beta2 = static_cast<float>(1 - s.beta2);
  f.step_size = static_cast<float>(s.lr / correction1);
  f.root_correction2 = static_cast<float>(std::sqrt(correction2));
  f.eps = static_cast<float>(s.eps);
  return f;
}

double count_nonfinite(const float* g, int64_t n) {
  return static_cast<double>(std::count_if(g, g + n, [](float x) { return !std::isfinite(x); }));
}

void run_adam(float* w, const float* g, float* m, float* v, int64_t n, const AdamFactors& f) {
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adam_range)(w + begin, g + begin, m + begin, v + begin, end - begin, f);
  });
}

}  // namespace

void sgd(float* w, const float* g, float* m, int64_t n, const UpdateStep& step) {
  SgdFactors f{static_cast<float>(step.scale),
               static_cast<float>(step.lr),
               static_cast<float>(step.weight_decay),
               static_cast<float>(step.momentum),
               step.t == 1,
               step.nesterov};
  if (step.momentum == 0) m = nullptr;
  parallel_ranges(n, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(sgd_range)(w + begin, g + begin, m ? m + begin : nullptr, end - begin, f);
  });
}

void adam(float* w, const float* g, float* m, float* v, int64_t n, const UpdateStep& step) {
  run_adam(w, g, m, v, n, adam_factors(step, false));
}

void adamw(float* w, const float* g, float* m, float* v, int64_t n, const UpdateStep& step) {
  run_adam(w, g, m, v, n, adam_factors(step, true));
}

void sum_of_squares(const float* g, int64_t n, double* sum, double* nonfinite) {
  constexpr int64_t kMinBlock = 8192, kMaxBlocks = 256;
  const int64_t block = std::max(kMinBlock, fixed_blocks(n, kMaxBlocks));
  const int64_t blocks = fixed_blocks(n, block);
  double sums[kMaxBlocks];
  parallel_ranges(blocks, block, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) {
      sums[b] = HWY_DYNAMIC_DISPATCH(squares_block)(g + b * block, std::min(block, n - b * block));
    }
  });
  *sum = *nonfinite = 0;
  for (int64_t b = 0; b < blocks; b++) {
    *sum += sums[b];
    // Squares of f32 do not overflow f64: only a block with infinities or NaN has such a sum.
    if (!std::isfinite(sums[b])) *nonfinite += count_nonfinite(g + b * block, std::min(block, n - b * block));
  }
}

}  // namespace piper::ops
#endif  // HWY_ONCE
