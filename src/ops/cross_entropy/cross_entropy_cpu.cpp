// Cross-entropy on the CPU. A target outside the classes that is not `ignore_index` makes its row NaN: the loss then
// shows it, where a silent zero would not.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cross_entropy/cross_entropy_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/vector-inl.h"

#ifndef PIPER_OPS_CROSS_ENTROPY_ARGS
#define PIPER_OPS_CROSS_ENTROPY_ARGS
namespace piper::ops {
// Logits are [outer, classes, inner]; a row is one (outer, inner) and has one target.
template <class T>
struct CrossEntropyArgs {
  int64_t classes, inner;
  double smoothing;
  int64_t ignore_index;
  const T* logits;
  const void* target;
  bool target_i64;
  double factor;   // of the gradient: weight / count
  T* dlogits;      // nullptr: the loss
  double* losses;  // of each row

  int64_t target_at(int64_t row) const {
    return target_i64 ? static_cast<const int64_t*>(target)[row] : static_cast<const int32_t*>(target)[row];
  }
  bool valid(int64_t t) const { return t >= 0 && t < classes; }
};
}  // namespace piper::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

// log(sum e^x) - (1 - s) x_t - s avg(x), all relative to the largest x; s is the smoothing.
double row_loss(double smoothing, double log_sum, double x_target, double average) {
  return log_sum - (smoothing == 0 ? x_target : (1 - smoothing) * x_target + smoothing * average);
}

template <class T>
void loss_row(const CrossEntropyArgs<T>& a, int64_t r) {
  const hn::ScalableTag<T> d;
  const int64_t n = a.classes, t = a.target_at(r);
  if (t == a.ignore_index || !a.valid(t)) {
    a.losses[r] = t == a.ignore_index ? 0.0 : NAN;
    return;
  }
  const T* x = a.logits + r * n;
  const T top = max_over(d, x, n);
  const auto max = hn::Set(d, top);
  const T sum = sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    return exp_low(d, hn::Sub(load_some(d, x + i, count, T(-HUGE_VALF)), max));
  });
  double average = 0;
  if (a.smoothing != 0) {
    average =
        sum_over(d, n,
                 [&](int64_t i, int64_t count) PIPER_INSIDE { return hn::Sub(load_some(d, x + i, count, top), max); }) /
        static_cast<double>(n);
  }
  a.losses[r] = row_loss(a.smoothing, std::log(static_cast<double>(sum)), static_cast<double>(x[t]) - top, average);
}

template <class T>
void grad_row(const CrossEntropyArgs<T>& a, int64_t r) {
  const hn::ScalableTag<T> d;
  const int64_t n = a.classes, t = a.target_at(r);
  T* dx = a.dlogits + r * n;
  if (t == a.ignore_index || a.factor == 0 || !a.valid(t)) {
    std::fill(dx, dx + n, t == a.ignore_index || a.factor == 0 ? T(0) : T(NAN));
    return;
  }
  const T* x = a.logits + r * n;
  const auto max = hn::Set(d, max_over(d, x, n));
  const T sum = sum_over(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto e = exp_low(d, hn::Sub(load_some(d, x + i, count, T(-HUGE_VALF)), max));
    store_some(d, e, dx + i, count);
    return e;
  });
  const auto factor = hn::Set(d, static_cast<T>(a.factor / sum));
  const auto smooth = hn::Set(d, static_cast<T>(a.factor * a.smoothing / static_cast<double>(n)));
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    store_some(d, hn::Sub(hn::Mul(load_some(d, dx + i, count), factor), smooth), dx + i, count);
  });
  dx[t] -= static_cast<T>(a.factor * (1 - a.smoothing));
}

// `count` neighbouring rows at once, whose classes are `inner` apart; `row` is the first, x and dx its first class.
template <class T>
void columns(const CrossEntropyArgs<T>& a, int64_t row, const T* x, T* dx, int64_t count) {
  const hn::ScalableTag<T> d;
  auto max = hn::Set(d, T(-HUGE_VALF)), sum = hn::Zero(d), total = hn::Zero(d);
  for (int64_t k = 0; k < a.classes; k++) max = hn::Max(load_some(d, x + k * a.inner, count), max);
  for (int64_t k = 0; k < a.classes; k++) {
    const auto v = hn::Sub(load_some(d, x + k * a.inner, count), max);
    const auto e = exp_low(d, v);
    sum = hn::Add(sum, e);
    total = hn::Add(total, v);
    if (dx) store_some(d, e, dx + k * a.inner, count);
  }
  T tops[HWY_MAX_BYTES / sizeof(T)], sums[HWY_MAX_BYTES / sizeof(T)], totals[HWY_MAX_BYTES / sizeof(T)];
  hn::StoreU(max, d, tops);
  hn::StoreU(sum, d, sums);
  hn::StoreU(total, d, totals);
  const double classes = static_cast<double>(a.classes);
  for (int64_t i = 0; i < count; i++) {
    const int64_t t = a.target_at(row + i);
    const bool none = t == a.ignore_index || (dx && a.factor == 0), bad = !none && !a.valid(t);
    if (!dx) {
      a.losses[row + i] = none  ? 0.0
                          : bad ? NAN
                                : row_loss(a.smoothing, std::log(static_cast<double>(sums[i])),
                                           static_cast<double>(x[t * a.inner + i]) - tops[i], totals[i] / classes);
      continue;
    }
    const T factor = static_cast<T>(a.factor / sums[i]), smooth = static_cast<T>(a.factor * a.smoothing / classes);
    for (int64_t k = 0; k < a.classes; k++) {
      T& v = dx[k * a.inner + i];
      v = none ? T(0) : bad ? T(NAN) : v * factor - smooth;
    }
    if (!none && !bad) dx[t * a.inner + i] -= static_cast<T>(a.factor * (1 - a.smoothing));
  }
}

// Outer indices [begin, end).
template <class T>
void run_range(const CrossEntropyArgs<T>& a, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  for (int64_t o = begin; o < end; o++) {
    if (a.inner == 1) {
      a.dlogits ? grad_row(a, o) : loss_row(a, o);
      continue;
    }
    walk(d, a.inner, [&](int64_t i, int64_t count) HWY_ATTR {
      const int64_t at = o * a.classes * a.inner + i;
      columns(a, o * a.inner + i, a.logits + at, a.dlogits ? a.dlogits + at : nullptr, count);
    });
  }
}

void cross_entropy_f32(const CrossEntropyArgs<float>& a, int64_t begin, int64_t end) { run_range(a, begin, end); }
void cross_entropy_f64(const CrossEntropyArgs<double>& a, int64_t begin, int64_t end) { run_range(a, begin, end); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

namespace {

HWY_EXPORT(cross_entropy_f32);
HWY_EXPORT(cross_entropy_f64);

void cross_entropy(const CrossEntropyArgs<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_f32)(a, begin, end);
}
void cross_entropy(const CrossEntropyArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_f64)(a, begin, end);
}

template <class T>
class CrossEntropyKernel : public Kernel {
 public:
  explicit CrossEntropyKernel(const KernelSpec& spec) {
    const std::vector<int64_t>& shape = spec.inputs[0].shape;
    int64_t dim = spec.attrs.i("class_dim", -1);
    size_t c = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(shape.size()) : dim);
    args_.classes = shape[c];
    args_.inner = 1;
    for (size_t i = 0; i < shape.size(); i++) {
      if (i < c) outer_ *= shape[i];
      if (i > c) args_.inner *= shape[i];
    }
    args_.smoothing = spec.attrs.f("label_smoothing");
    args_.ignore_index = spec.attrs.i("ignore_index", -100);
    args_.target_i64 = spec.inputs[1].dtype == ir::DType::kI64;
  }

 protected:
  CrossEntropyArgs<T> bind(const void* const* in) const {
    CrossEntropyArgs<T> a = args_;
    a.logits = static_cast<const T*>(in[0]);
    a.target = in[1];
    return a;
  }
  void run_all(const CrossEntropyArgs<T>& a) const {
    parallel_ranges(outer_, 4 * a.classes * a.inner, [&](int64_t begin, int64_t end) { cross_entropy(a, begin, end); });
  }
  int64_t outer_ = 1;
  CrossEntropyArgs<T> args_{};
};

template <class T>
class LossKernel final : public CrossEntropyKernel<T> {
 public:
  explicit LossKernel(const KernelSpec& spec)
      : CrossEntropyKernel<T>(spec), accumulate_(spec.attrs.i("accumulate") & 1) {}
  size_t scratch_bytes() const override { return static_cast<size_t>(rows()) * sizeof(double); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    CrossEntropyArgs<T> a = this->bind(in);
    a.losses = static_cast<double*>(context.scratch);
    this->run_all(a);
    double sum = 0;
    for (int64_t r = 0; r < rows(); r++) sum += a.losses[r];
    double* y = static_cast<double*>(out[0]);
    *y = accumulate_ ? *y + sum : sum;
  }

 private:
  int64_t rows() const { return this->outer_ * this->args_.inner; }
  bool accumulate_;
};

template <class T>
class GradKernel final : public CrossEntropyKernel<T> {
 public:
  explicit GradKernel(const KernelSpec& spec) : CrossEntropyKernel<T>(spec), weight_(spec.attrs.f("weight", 1)) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    CrossEntropyArgs<T> a = this->bind(in);
    double count = *static_cast<const double*>(in[2]);
    a.factor = count == 0 ? 0 : weight_ / count;
    a.dlogits = static_cast<T*>(out[0]);
    this->run_all(a);
  }

 private:
  double weight_;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_CrossEntropyLoss(const KernelSpec& spec) {
  return make_float_kernel<LossKernel>(spec);
}
std::unique_ptr<Kernel> make_cpu_CrossEntropyGrad(const KernelSpec& spec) {
  return make_float_kernel<GradKernel>(spec);
}

std::unique_ptr<Kernel> make_cpu_CountValid(const KernelSpec& spec) {
  int64_t n = ir::num_elements(spec.inputs[0].shape), ignore = spec.attrs.i("ignore_index", -100);
  bool wide = spec.inputs[0].dtype == ir::DType::kI64, accumulate = spec.attrs.i("accumulate") & 1;
  return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
      count += (wide ? static_cast<const int64_t*>(in[0])[i] : static_cast<const int32_t*>(in[0])[i]) != ignore;
    }
    double* y = static_cast<double*>(out[0]);
    *y = (accumulate ? *y : 0) + static_cast<double>(count);
  });
}

}  // namespace piper::ops
#endif  // HWY_ONCE
