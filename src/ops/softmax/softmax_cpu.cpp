// Softmax, LogSoftmax and their gradients on the CPU. The last axis runs vectors along a row; any other axis runs them
// across rows, so that both read memory in order.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/softmax/softmax_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/vector-inl.h"

#ifndef PIPER_OPS_SOFTMAX_ARGS
#define PIPER_OPS_SOFTMAX_ARGS
namespace piper::ops {
enum class SoftmaxMode { kSoftmax, kLogSoftmax, kSoftmaxGrad, kLogSoftmaxGrad };
template <class T>
struct SoftmaxArgs {
  SoftmaxMode mode;
  int64_t n, inner;  // the axis' size and the distance of its elements
  const T *x, *dy;   // x of a forward op; y and dy of a gradient
  T* out;
};
}  // namespace piper::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void softmax_row(const T* x, T* y, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto max = hn::Set(d, max_over(d, x, n));
  const T sum = sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto e = exp_low(d, hn::Sub(load_some(d, x + i, count, T(-HUGE_VALF)), max));
    store_some(d, e, y + i, count);
    return e;
  });
  const auto factor = hn::Set(d, T(1) / sum);
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    store_some(d, hn::Mul(load_some(d, y + i, count), factor), y + i, count);
  });
}

template <class T>
void log_softmax_row(const T* x, T* y, int64_t n) {
  const hn::ScalableTag<T> d;
  const T top = max_over(d, x, n);
  const auto max = hn::Set(d, top);
  const T sum = sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    return exp_low(d, hn::Sub(load_some(d, x + i, count, T(-HUGE_VALF)), max));
  });
  const auto log = hn::Set(d, std::log(sum));
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    store_some(d, hn::Sub(hn::Sub(load_some(d, x + i, count), max), log), y + i, count);
  });
}

// dx = y * (dy - sum(y * dy))
template <class T>
void softmax_grad_row(const T* y, const T* dy, T* dx, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto dot = hn::Set(d, sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
                             return hn::Mul(load_some(d, y + i, count), load_some(d, dy + i, count));
                           }));
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto v = hn::Mul(load_some(d, y + i, count), hn::Sub(load_some(d, dy + i, count), dot));
    store_some(d, v, dx + i, count);
  });
}

// dx = dy - e^y * sum(dy)
template <class T>
void log_softmax_grad_row(const T* y, const T* dy, T* dx, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto sum =
      hn::Set(d, sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE { return load_some(d, dy + i, count); }));
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto p = exp_low(d, load_some(d, y + i, count));
    store_some(d, hn::NegMulAdd(p, sum, load_some(d, dy + i, count)), dx + i, count);
  });
}

template <class T>
void rows(const SoftmaxArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const T *x = a.x + r * a.n, *dy = a.dy ? a.dy + r * a.n : nullptr;
    T* out = a.out + r * a.n;
    switch (a.mode) {
      case SoftmaxMode::kSoftmax:
        softmax_row(x, out, a.n);
        break;
      case SoftmaxMode::kLogSoftmax:
        log_softmax_row(x, out, a.n);
        break;
      case SoftmaxMode::kSoftmaxGrad:
        softmax_grad_row(x, dy, out, a.n);
        break;
      case SoftmaxMode::kLogSoftmaxGrad:
        log_softmax_grad_row(x, dy, out, a.n);
        break;
    }
  }
}

// The same four for a vector of `count` neighbouring columns, whose elements are `inner` apart.
template <class T>
void forward_columns(const SoftmaxArgs<T>& a, const T* x, T* y, int64_t count) {
  const hn::ScalableTag<T> d;
  auto max = hn::Set(d, T(-HUGE_VALF)), sum = hn::Zero(d);
  for (int64_t k = 0; k < a.n; k++) max = hn::Max(load_some(d, x + k * a.inner, count), max);
  for (int64_t k = 0; k < a.n; k++) {
    const auto e = exp_low(d, hn::Sub(load_some(d, x + k * a.inner, count), max));
    sum = hn::Add(sum, e);
    if (a.mode == SoftmaxMode::kSoftmax) store_some(d, e, y + k * a.inner, count);
  }
  if (a.mode == SoftmaxMode::kSoftmax) {
    const auto factor = hn::Div(hn::Set(d, T(1)), sum);
    for (int64_t k = 0; k < a.n; k++) {
      store_some(d, hn::Mul(load_some(d, y + k * a.inner, count), factor), y + k * a.inner, count);
    }
  } else {
    const auto log = hn::Log(d, sum);
    for (int64_t k = 0; k < a.n; k++) {
      const auto v = hn::Sub(hn::Sub(load_some(d, x + k * a.inner, count), max), log);
      store_some(d, v, y + k * a.inner, count);
    }
  }
}

template <class T>
void backward_columns(const SoftmaxArgs<T>& a, const T* y, const T* dy, T* dx, int64_t count) {
  const hn::ScalableTag<T> d;
  const bool log = a.mode == SoftmaxMode::kLogSoftmaxGrad;
  auto sum = hn::Zero(d);
  for (int64_t k = 0; k < a.n; k++) {
    const auto v = load_some(d, dy + k * a.inner, count);
    sum = hn::Add(sum, log ? v : hn::Mul(v, load_some(d, y + k * a.inner, count)));
  }
  for (int64_t k = 0; k < a.n; k++) {
    const auto v = load_some(d, dy + k * a.inner, count), p = load_some(d, y + k * a.inner, count);
    const auto dv = log ? hn::NegMulAdd(exp_low(d, p), sum, v) : hn::Mul(p, hn::Sub(v, sum));
    store_some(d, dv, dx + k * a.inner, count);
  }
}

// Outer indices [begin, end) of an axis that is not the last.
template <class T>
void columns(const SoftmaxArgs<T>& a, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  for (int64_t o = begin; o < end; o++) {
    const int64_t start = o * a.n * a.inner;
    walk(d, a.inner, [&](int64_t i, int64_t count) HWY_ATTR {
      const int64_t at = start + i;
      if (a.dy) {
        backward_columns(a, a.x + at, a.dy + at, a.out + at, count);
      } else {
        forward_columns(a, a.x + at, a.out + at, count);
      }
    });
  }
}

void softmax_f32(const SoftmaxArgs<float>& a, int64_t begin, int64_t end) {
  a.inner == 1 ? rows(a, begin, end) : columns(a, begin, end);
}
void softmax_f64(const SoftmaxArgs<double>& a, int64_t begin, int64_t end) {
  a.inner == 1 ? rows(a, begin, end) : columns(a, begin, end);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

namespace {

HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);

void softmax(const SoftmaxArgs<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(softmax_f32)(a, begin, end);
}
void softmax(const SoftmaxArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(softmax_f64)(a, begin, end);
}

template <class T, SoftmaxMode kMode>
class SoftmaxKernel : public Kernel {
 public:
  explicit SoftmaxKernel(const KernelSpec& spec) {
    const std::vector<int64_t>& shape = spec.inputs[0].shape;
    int64_t axis = spec.attrs.i("axis", -1);
    size_t a = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis);
    for (size_t i = 0; i < shape.size(); i++) (i < a ? outer_ : i == a ? n_ : inner_) *= shape[i];
  }
  void run(const void* const* in, void* const* out, const RunContext&) override {
    constexpr bool kGrad = kMode == SoftmaxMode::kSoftmaxGrad || kMode == SoftmaxMode::kLogSoftmaxGrad;
    SoftmaxArgs<T> a{kMode,
                     n_,
                     inner_,
                     static_cast<const T*>(in[0]),
                     kGrad ? static_cast<const T*>(in[1]) : nullptr,
                     static_cast<T*>(out[0])};
    parallel_ranges(outer_, 4 * n_ * inner_, [&](int64_t begin, int64_t end) { softmax(a, begin, end); });
  }

 private:
  int64_t outer_ = 1, n_ = 1, inner_ = 1;
};

template <class T>
using Softmax = SoftmaxKernel<T, SoftmaxMode::kSoftmax>;
template <class T>
using LogSoftmax = SoftmaxKernel<T, SoftmaxMode::kLogSoftmax>;
template <class T>
using SoftmaxGrad = SoftmaxKernel<T, SoftmaxMode::kSoftmaxGrad>;
template <class T>
using LogSoftmaxGrad = SoftmaxKernel<T, SoftmaxMode::kLogSoftmaxGrad>;

}  // namespace

std::unique_ptr<Kernel> make_cpu_Softmax(const KernelSpec& spec) { return make_float_kernel<Softmax>(spec); }
std::unique_ptr<Kernel> make_cpu_LogSoftmax(const KernelSpec& spec) { return make_float_kernel<LogSoftmax>(spec); }
std::unique_ptr<Kernel> make_cpu_SoftmaxGrad(const KernelSpec& spec) { return make_float_kernel<SoftmaxGrad>(spec); }
std::unique_ptr<Kernel> make_cpu_LogSoftmaxGrad(const KernelSpec& spec) {
  return make_float_kernel<LogSoftmaxGrad>(spec);
}

}  // namespace piper::ops
#endif  // HWY_ONCE
