// LayerNorm on the CPU. Rows are independent; the gradients of scale and bias are summed in fixed blocks of rows.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm/layer_norm_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/column_sums.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/vector-inl.h"

#ifndef PIPER_OPS_LAYER_NORM_ARGS
#define PIPER_OPS_LAYER_NORM_ARGS
namespace piper::ops {
template <class T>
struct LayerNormArgs {
  int64_t n = 0;
  T eps = 0;
  const T *x = nullptr, *scale = nullptr, *bias = nullptr;
  T *y = nullptr, *mean = nullptr, *rstd = nullptr;
};
template <class T>
struct LayerNormGradArgs {
  int64_t rows = 0, n = 0;
  const T *x = nullptr, *scale = nullptr, *mean = nullptr, *rstd = nullptr, *dy = nullptr;
  T *dx = nullptr, *dscale = nullptr, *dbias = nullptr;  // the last two: partial sums [blocks, n]
};
}  // namespace piper::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward_rows(const LayerNormArgs<T>& a, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const int64_t n = a.n;
  for (int64_t r = begin; r < end; r++) {
    const T* x = a.x + r * n;
    T* y = a.y + r * n;
    const T mean =
        sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE { return load_some(d, x + i, count); }) / T(n);
    const auto vmean = hn::Set(d, mean);
    const T square = sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
      const auto c = hn::Sub(load_some(d, x + i, count, mean), vmean);
      return hn::Mul(c, c);
    });
    const T rstd = T(1) / std::sqrt(square / T(n) + a.eps);
    const auto vrstd = hn::Set(d, rstd);
    walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
      auto v = hn::Mul(hn::Sub(load_some(d, x + i, count), vmean), vrstd);
      v = hn::Mul(v, load_some(d, a.scale + i, count));
      if (a.bias) v = hn::Add(v, load_some(d, a.bias + i, count));
      store_some(d, v, y + i, count);
    });
    if (a.mean) a.mean[r] = mean;
    if (a.rstd) a.rstd[r] = rstd;
  }
}

// With h = (x - mean) * rstd and g = dy * scale: dx = rstd * (g - avg(g) - h * avg(g * h)).
template <class T>
void backward_row(const LayerNormGradArgs<T>& a, int64_t r, T* dscale, T* dbias) {
  const hn::ScalableTag<T> d;
  const int64_t n = a.n;
  const T *x = a.x + r * n, *dy = a.dy + r * n;
  const auto mean = hn::Set(d, a.mean[r]), rstd = hn::Set(d, a.rstd[r]);
  auto sum_g = hn::Zero(d), sum_gh = hn::Zero(d);
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto h = hn::Mul(hn::Sub(load_some(d, x + i, count), mean), rstd);
    const auto v = load_some(d, dy + i, count);
    const auto g = hn::Mul(v, load_some(d, a.scale + i, count));
    sum_g = hn::Add(sum_g, g);
    sum_gh = hn::MulAdd(g, h, sum_gh);
    store_some(d, hn::MulAdd(v, h, load_some(d, dscale + i, count)), dscale + i, count);
    store_some(d, hn::Add(v, load_some(d, dbias + i, count)), dbias + i, count);
  });
  if (!a.dx) return;
  T* dx = a.dx + r * n;
  const auto avg_g = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum_g)) / T(n));
  const auto avg_gh = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum_gh)) / T(n));
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto h = hn::Mul(hn::Sub(load_some(d, x + i, count), mean), rstd);
    const auto g = hn::Mul(load_some(d, dy + i, count), load_some(d, a.scale + i, count));
    store_some(d, hn::Mul(rstd, hn::NegMulAdd(h, avg_gh, hn::Sub(g, avg_g))), dx + i, count);
  });
}

template <class T>
void backward_blocks(const LayerNormGradArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++) {
    T *dscale = a.dscale + b * a.n, *dbias = a.dbias + b * a.n;
    std::fill(dscale, dscale + a.n, T(0));
    std::fill(dbias, dbias + a.n, T(0));
    const int64_t last = std::min(a.rows, (b + 1) * kRowBlock);
    for (int64_t r = b * kRowBlock; r < last; r++) backward_row(a, r, dscale, dbias);
  }
}

void forward_f32(const LayerNormArgs<float>& a, int64_t begin, int64_t end) { forward_rows(a, begin, end); }
void forward_f64(const LayerNormArgs<double>& a, int64_t begin, int64_t end) { forward_rows(a, begin, end); }
void backward_f32(const LayerNormGradArgs<float>& a, int64_t begin, int64_t end) { backward_blocks(a, begin, end); }
void backward_f64(const LayerNormGradArgs<double>& a, int64_t begin, int64_t end) { backward_blocks(a, begin, end); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

void forward(const LayerNormArgs<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(a, begin, end);
}
void forward(const LayerNormArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f64)(a, begin, end);
}
void backward(const LayerNormGradArgs<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(a, begin, end);
}
void backward(const LayerNormGradArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f64)(a, begin, end);
}

template <class T>
class LayerNormKernel final : public Kernel {
 public:
  explicit LayerNormKernel(const KernelSpec& spec)
      : extent_(spec), eps_(static_cast<T>(spec.attrs.f("eps", 1e-5))), bias_(has_input(spec, 2)) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    LayerNormArgs<T> a{extent_.n,
                       eps_,
                       static_cast<const T*>(in[0]),
                       static_cast<const T*>(in[1]),
                       bias_ ? static_cast<const T*>(in[2]) : nullptr,
                       static_cast<T*>(out[0]),
                       static_cast<T*>(out[1]),
                       static_cast<T*>(out[2])};
    parallel_ranges(extent_.rows, extent_.n, [&](int64_t begin, int64_t end) { forward(a, begin, end); });
  }

 private:
  RowExtent extent_;
  T eps_;
  bool bias_;
};

template <class T>
class LayerNormGradKernel final : public Kernel {
 public:
  explicit LayerNormGradKernel(const KernelSpec& spec)
      : extent_(spec), blocks_(fixed_blocks(extent_.rows, kRowBlock)), accumulate_(spec.attrs.i("accumulate")) {}
  size_t scratch_bytes() const override { return static_cast<size_t>(2 * blocks_ * extent_.n) * sizeof(T); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    T* partial = static_cast<T*>(context.scratch);
    LayerNormGradArgs<T> a{extent_.rows,
                           extent_.n,
                           static_cast<const T*>(in[0]),
                           static_cast<const T*>(in[1]),
                           static_cast<const T*>(in[2]),
                           static_cast<const T*>(in[3]),
                           static_cast<const T*>(in[4]),
                           static_cast<T*>(out[0]),
                           partial,
                           partial + blocks_ * extent_.n};
    parallel_ranges(blocks_, kRowBlock * extent_.n, [&](int64_t begin, int64_t end) { backward(a, begin, end); });
    if (out[1]) sum_partials(a.dscale, blocks_, extent_.n, static_cast<T*>(out[1]), accumulate_ & 2);
    if (out[2]) sum_partials(a.dbias, blocks_, extent_.n, static_cast<T*>(out[2]), accumulate_ & 4);
  }

 private:
  RowExtent extent_;
  int64_t blocks_;
  int64_t accumulate_;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_LayerNorm(const KernelSpec& spec) { return make_float_kernel<LayerNormKernel>(spec); }

std::unique_ptr<Kernel> make_cpu_LayerNormGrad(const KernelSpec& spec) {
  return make_float_kernel<LayerNormGradKernel>(spec);
}

}  // namespace piper::ops
#endif  // HWY_ONCE
