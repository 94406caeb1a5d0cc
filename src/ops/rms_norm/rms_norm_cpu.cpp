// RmsNorm on the CPU. Rows are independent; the gradient of scale is summed in fixed blocks of rows.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rms_norm/rms_norm_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/column_sums.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/vector-inl.h"

#ifndef PIPER_OPS_RMS_NORM_ARGS
#define PIPER_OPS_RMS_NORM_ARGS
namespace piper::ops {
template <class T>
struct RmsNormArgs {
  int64_t n = 0;
  T eps = 0;
  const T *x = nullptr, *scale = nullptr;
  T *y = nullptr, *rstd = nullptr;
};
template <class T>
struct RmsNormGradArgs {
  int64_t rows = 0, n = 0;
  const T *x = nullptr, *scale = nullptr, *rstd = nullptr, *dy = nullptr;
  T *dx = nullptr, *dscale = nullptr;  // the last: partial sums [blocks, n]
};
}  // namespace piper::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward_rows(const RmsNormArgs<T>& a, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const int64_t n = a.n;
  for (int64_t r = begin; r < end; r++) {
    const T* x = a.x + r * n;
    T* y = a.y + r * n;
    const T square = sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
      const auto v = load_some(d, x + i, count);
      return hn::Mul(v, v);
    });
    const T rstd = T(1) / std::sqrt(square / T(n) + a.eps);
    const auto vrstd = hn::Set(d, rstd);
    walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
      const auto h = hn::Mul(load_some(d, x + i, count), vrstd);
      store_some(d, hn::Mul(h, load_some(d, a.scale + i, count)), y + i, count);
    });
    if (a.rstd) a.rstd[r] = rstd;
  }
}

// With h = x * rstd and g = dy * scale: dx = rstd * (g - h * avg(g * h)).
template <class T>
void backward_row(const RmsNormGradArgs<T>& a, int64_t r, T* dscale) {
  const hn::ScalableTag<T> d;
  const int64_t n = a.n;
  const T *x = a.x + r * n, *dy = a.dy + r * n;
  const auto rstd = hn::Set(d, a.rstd[r]);
  auto sum_gh = hn::Zero(d);
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto h = hn::Mul(load_some(d, x + i, count), rstd);
    const auto v = load_some(d, dy + i, count);
    sum_gh = hn::MulAdd(hn::Mul(v, load_some(d, a.scale + i, count)), h, sum_gh);
    store_some(d, hn::MulAdd(v, h, load_some(d, dscale + i, count)), dscale + i, count);
  });
  if (!a.dx) return;
  T* dx = a.dx + r * n;
  const auto avg_gh = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum_gh)) / T(n));
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto h = hn::Mul(load_some(d, x + i, count), rstd);
    const auto g = hn::Mul(load_some(d, dy + i, count), load_some(d, a.scale + i, count));
    store_some(d, hn::Mul(rstd, hn::NegMulAdd(h, avg_gh, g)), dx + i, count);
  });
}

template <class T>
void backward_blocks(const RmsNormGradArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++) {
    T* dscale = a.dscale + b * a.n;
    std::fill(dscale, dscale + a.n, T(0));
    const int64_t last = std::min(a.rows, (b + 1) * kRowBlock);
    for (int64_t r = b * kRowBlock; r < last; r++) backward_row(a, r, dscale);
  }
}

void forward_f32(const RmsNormArgs<float>& a, int64_t begin, int64_t end) { forward_rows(a, begin, end); }
void forward_f64(const RmsNormArgs<double>& a, int64_t begin, int64_t end) { forward_rows(a, begin, end); }
void backward_f32(const RmsNormGradArgs<float>& a, int64_t begin, int64_t end) { backward_blocks(a, begin, end); }
void backward_f64(const RmsNormGradArgs<double>& a, int64_t begin, int64_t end) { backward_blocks(a, begin, end); }

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

void forward(const RmsNormArgs<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(a, begin, end);
}
void forward(const RmsNormArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f64)(a, begin, end);
}
void backward(const RmsNormGradArgs<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(a, begin, end);
}
void backward(const RmsNormGradArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f64)(a, begin, end);
}

template <class T>
class RmsNormKernel final : public Kernel {
 public:
  explicit RmsNormKernel(const KernelSpec& spec) : extent_(spec), eps_(static_cast<T>(spec.attrs.f("eps", 1e-5))) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    RmsNormArgs<T> a{extent_.n,
                     eps_,
                     static_cast<const T*>(in[0]),
                     static_cast<const T*>(in[1]),
                     static_cast<T*>(out[0]),
                     static_cast<T*>(out[1])};
    parallel_ranges(extent_.rows, extent_.n, [&](int64_t begin, int64_t end) { forward(a, begin, end); });
  }

 private:
  RowExtent extent_;
  T eps_;
};

template <class T>
class RmsNormGradKernel final : public Kernel {
 public:
  explicit RmsNormGradKernel(const KernelSpec& spec)
      : extent_(spec), blocks_(fixed_blocks(extent_.rows, kRowBlock)), accumulate_(spec.attrs.i("accumulate")) {}
  size_t scratch_bytes() const override { return static_cast<size_t>(blocks_ * extent_.n) * sizeof(T); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    T* partial = static_cast<T*>(context.scratch);
    RmsNormGradArgs<T> a{extent_.rows,
                         extent_.n,
                         static_cast<const T*>(in[0]),
                         static_cast<const T*>(in[1]),
                         static_cast<const T*>(in[2]),
                         static_cast<const T*>(in[3]),
                         static_cast<T*>(out[0]),
                         partial};
    parallel_ranges(blocks_, kRowBlock * extent_.n, [&](int64_t begin, int64_t end) { backward(a, begin, end); });
    if (out[1]) sum_partials(a.dscale, blocks_, extent_.n, static_cast<T*>(out[1]), accumulate_ & 2);
  }

 private:
  RowExtent extent_;
  int64_t blocks_;
  int64_t accumulate_;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_RmsNorm(const KernelSpec& spec) { return make_float_kernel<RmsNormKernel>(spec); }

std::unique_ptr<Kernel> make_cpu_RmsNormGrad(const KernelSpec& spec) {
  return make_float_kernel<RmsNormGradKernel>(spec);
}

}  // namespace piper::ops
#endif  // HWY_ONCE
