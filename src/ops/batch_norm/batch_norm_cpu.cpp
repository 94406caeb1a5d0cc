// Batch normalisation on the CPU. Channels are independent; within one, rows are taken in order and
// their sums added in f64, so that neither threads nor the number of rows cost digits.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/batch_norm/batch_norm_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/vector-inl.h"

#ifndef PIPER_OPS_BATCH_NORM_ARGS
#define PIPER_OPS_BATCH_NORM_ARGS
namespace piper::ops {
// x[n, channels, inner]; statistics [n, channels] of groups of `rows`, or [channels] when they are
// given.
template <class T>
struct BatchNormArgs {
  int64_t n = 0, channels = 0, inner = 1, rows = 1;
  bool given = false;
  T eps = 0;
  const T *x = nullptr, *scale = nullptr, *bias = nullptr, *mean = nullptr, *variance = nullptr, *dy = nullptr;
  T *y = nullptr, *out_mean = nullptr, *out_variance = nullptr;  // of the forward pass
  T *dx = nullptr, *dscale = nullptr, *dbias = nullptr;          // of the backward pass
  bool add_scale = false, add_bias = false;

  const T* at(const T* base, int64_t row, int64_t channel) const { return base + (row * channels + channel) * inner; }
  T* at(T* base, int64_t row, int64_t channel) const { return base + (row * channels + channel) * inner; }
};
}  // namespace piper::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

// y = (x - mean) * factor + bias
template <class T>
void normalise(const BatchNormArgs<T>& a, int64_t row, int64_t c, T mean, T factor) {
  const hn::ScalableTag<T> d;
  const T* x = a.at(a.x, row, c);
  T* y = a.at(a.y, row, c);
  if (a.inner == 1) {
    *y = (*x - mean) * factor + a.bias[c];
    return;
  }
  const auto vmean = hn::Set(d, mean), vfactor = hn::Set(d, factor), vbias = hn::Set(d, a.bias[c]);
  walk(d, a.inner, [&](int64_t i, int64_t count) PIPER_INSIDE {
    store_some(d, hn::MulAdd(hn::Sub(load_some(d, x + i, count), vmean), vfactor, vbias), y + i, count);
  });
}

template <class T>
double sum_row(const T* x, int64_t inner) {
  if (inner == 1) return static_cast<double>(*x);
  const hn::ScalableTag<T> d;
  return static_cast<double>(
      sum_over(d, inner, [&](int64_t i, int64_t count) PIPER_INSIDE { return load_some(d, x + i, count); }));
}

template <class T>
double squares_row(const T* x, int64_t inner, T mean) {
  if (inner == 1) return static_cast<double>((*x - mean) * (*x - mean));
  const hn::ScalableTag<T> d;
  const auto vmean = hn::Set(d, mean);
  return static_cast<double>(sum_over(d, inner, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto v = hn::Sub(load_some(d, x + i, count, mean), vmean);
    return hn::Mul(v, v);
  }));
}

template <class T>
void forward_channel(const BatchNormArgs<T>& a, int64_t c) {
  for (int64_t begin = 0; begin < a.n; begin += a.rows) {
    const int64_t end = std::min(a.n, begin + a.rows);
    T mean = 0, variance = 0;
    if (a.given) {
      mean = a.mean[c];
      variance = a.variance[c];
    } else {
      const double count = static_cast<double>((end - begin) * a.inner);
      double sum = 0, squares = 0;
      for (int64_t r = begin; r < end; r++) sum += sum_row(a.at(a.x, r, c), a.inner);
      mean = static_cast<T>(sum / count);
      for (int64_t r = begin; r < end; r++) squares += squares_row(a.at(a.x, r, c), a.inner, mean);
      variance = static_cast<T>(squares / count);
    }
    const T factor = a.scale[c] / std::sqrt(variance + a.eps);
    for (int64_t r = begin; r < end; r++) {
      normalise(a, r, c, mean, factor);
      if (a.given) continue;
      a.out_mean[r * a.channels + c] = mean;
      a.out_variance[r * a.channels + c] = variance;
    }
  }
}

// Adds the sums of dy and of dy * (x - mean) over a row.
template <class T>
void gradient_sums(const BatchNormArgs<T>& a, int64_t row, int64_t c, T mean, double* sum, double* product) {
  const hn::ScalableTag<T> d;
  const T *x = a.at(a.x, row, c), *dy = a.at(a.dy, row, c);
  *sum += sum_row(dy, a.inner);
  if (a.inner == 1) {
    *product += static_cast<double>(*dy * (*x - mean));
    return;
  }
  const auto vmean = hn::Set(d, mean);
  *product += static_cast<double>(sum_over(d, a.inner, [&](int64_t i, int64_t count) PIPER_INSIDE {
    return hn::Mul(load_some(d, dy + i, count), hn::Sub(load_some(d, x + i, count), vmean));
  }));
}

// dx = factor * (dy - shift - (x - mean) * slope)
template <class T>
void gradient_row(const BatchNormArgs<T>& a, int64_t row, int64_t c, T mean, T factor, T shift, T slope) {
  const hn::ScalableTag<T> d;
  const T *x = a.at(a.x, row, c), *dy = a.at(a.dy, row, c);
  T* dx = a.at(a.dx, row, c);
  if (a.inner == 1) {
    *dx = factor * (*dy - shift - (*x - mean) * slope);
    return;
  }
  const auto vmean = hn::Set(d, mean), vfactor = hn::Set(d, factor), vshift = hn::Set(d, shift),
             vslope = hn::Set(d, slope);
  walk(d, a.inner, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto centred = hn::Sub(load_some(d, x + i, count), vmean);
    const auto g = hn::NegMulAdd(centred, vslope, hn::Sub(load_some(d, dy + i, count), vshift));
    store_some(d, hn::Mul(g, vfactor), dx + i, count);
  });
}

// With h = (x - mean) * rstd: dscale = sum of dy h, dbias = sum of dy, and dx = scale * rstd * (dy
// - avg(dy) - h avg(dy h)); statistics that are given do not move with x, and the averages fall
// away.
template <class T>
void backward_channel(const BatchNormArgs<T>& a, int64_t c) {
  double dscale = 0, dbias = 0;
  for (int64_t begin = 0; begin < a.n; begin += a.rows) {
    const int64_t end = std::min(a.n, begin + a.rows);
    const T mean = a.given ? a.mean[c] : a.mean[begin * a.channels + c];
    const T rstd = T(1) / std::sqrt((a.given ? a.variance[c] : a.variance[begin * a.channels + c]) + a.eps);
    double sum = 0, product = 0;
    for (int64_t r = begin; r < end; r++) gradient_sums(a, r, c, mean, &sum, &product);
    dbias += sum;
    dscale += product * static_cast<double>(rstd);
    const double count = static_cast<double>((end - begin) * a.inner);
    const T shift = a.given ? T(0) : static_cast<T>(sum / count);
    const T slope = a.given ? T(0) : static_cast<T>(product / count) * rstd * rstd;
    for (int64_t r = begin; r < end; r++) gradient_row(a, r, c, mean, a.scale[c] * rstd, shift, slope);
  }
  a.dscale[c] = (a.add_scale ? a.dscale[c] : T(0)) + static_cast<T>(dscale);
  a.dbias[c] = (a.add_bias ? a.dbias[c] : T(0)) + static_cast<T>(dbias);
}

template <class T>
void channels(const BatchNormArgs<T>& a, bool backward) {
  parallel_ranges(a.channels, a.n * a.inner, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c++) backward ? backward_channel(a, c) : forward_channel(a, c);
  });
}

}  // namespace

void batch_norm_f32(const BatchNormArgs<float>& a, bool backward) { channels(a, backward); }
void batch_norm_f64(const BatchNormArgs<double>& a, bool backward) { channels(a, backward); }

}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

HWY_EXPORT(batch_norm_f32);
HWY_EXPORT(batch_norm_f64);

namespace {

void run_channels(const BatchNormArgs<float>& a, bool backward) { HWY_DYNAMIC_DISPATCH(batch_norm_f32)(a, backward); }
void run_channels(const BatchNormArgs<double>& a, bool backward) { HWY_DYNAMIC_DISPATCH(batch_norm_f64)(a, backward); }

template <class T>
BatchNormArgs<T> args_of(const KernelSpec& spec, bool given) {
  const std::vector<int64_t>& shape = spec.inputs[0].shape;
  BatchNormArgs<T> a;
  a.n = shape[0];
  a.channels = shape[1];
  a.inner = ir::num_elements(std::vector<int64_t>(shape.begin() + 2, shape.end()));
  a.given = given;
  a.rows = spec.attrs.i("rows");
  if (given || a.rows <= 0) a.rows = std::max<int64_t>(1, a.n);
  a.eps = static_cast<T>(spec.attrs.f("eps", 1e-5));
  a.add_scale = (spec.attrs.i("accumulate") & 2) != 0;
  a.add_bias = (spec.attrs.i("accumulate") & 4) != 0;
  return a;
}

template <class T>
class Forward final : public Kernel {
 public:
  Forward(const KernelSpec& spec, bool given) : args_(args_of<T>(spec, given)) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    BatchNormArgs<T> a = args_;
    a.x = static_cast<const T*>(in[0]);
    a.scale = static_cast<const T*>(in[1]);
    a.bias = static_cast<const T*>(in[2]);
    a.y = static_cast<T*>(out[0]);
    if (a.given) {
      a.mean = static_cast<const T*>(in[3]);
      a.variance = static_cast<const T*>(in[4]);
    } else {
      a.out_mean = static_cast<T*>(out[1]);
      a.out_variance = static_cast<T*>(out[2]);
    }
    run_channels(a, false);
  }

 private:
  BatchNormArgs<T> args_;
};

template <class T>
class Backward final : public Kernel {
 public:
  Backward(const KernelSpec& spec, bool given) : args_(args_of<T>(spec, given)) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    BatchNormArgs<T> a = args_;
    a.x = static_cast<const T*>(in[0]);
    a.scale = static_cast<const T*>(in[1]);
    a.mean = static_cast<const T*>(in[2]);
    a.variance = static_cast<const T*>(in[3]);
    a.dy = static_cast<const T*>(in[4]);
    a.dx = static_cast<T*>(out[0]);
    a.dscale = static_cast<T*>(out[1]);
    a.dbias = static_cast<T*>(out[2]);
    run_channels(a, true);
  }

 private:
  BatchNormArgs<T> args_;
};

// [n, channels] -> [channels]: the weighted sum over the groups of rows that are here, by their
// place in the global batch.
template <class T>
class Statistics final : public Kernel {
 public:
  explicit Statistics(const KernelSpec& spec)
      : n_(spec.inputs[0].shape[0]),
        channels_(spec.inputs[0].shape[1]),
        rows_(spec.attrs.i("rows")),
        rows_per_sample_(spec.attrs.i("rows_per_sample")),
        groups_(spec.attrs.i("groups", 1)),
        momentum_(spec.attrs.f("momentum")),
        accumulate_(spec.attrs.i("accumulate") & 1) {
    if (rows_ <= 0) rows_ = std::max<int64_t>(1, n_);
  }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    const int64_t first = context.sample_start * rows_per_sample_ / rows_;
    for (int64_t c = 0; c < channels_; c++) {
      double sum = 0;
      for (int64_t begin = 0; begin < n_; begin += rows_) {
        const int64_t after = groups_ - 1 - (first + begin / rows_);
        sum += (1 - momentum_) * std::pow(momentum_, static_cast<double>(after)) *
               static_cast<double>(x[begin * channels_ + c]);
      }
      y[c] = (accumulate_ ? y[c] : T(0)) + static_cast<T>(sum);
    }
  }

 private:
  int64_t n_, channels_, rows_, rows_per_sample_, groups_;
  double momentum_;
  bool accumulate_;
};

template <template <class> class Make>
std::unique_ptr<Kernel> make(const KernelSpec& spec, bool given) {
  if (spec.inputs[0].dtype == ir::DType::kF32) return std::make_unique<Make<float>>(spec, given);
  if (spec.inputs[0].dtype == ir::DType::kF64) return std::make_unique<Make<double>>(spec, given);
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_BatchNorm(const KernelSpec& spec) { return make<Forward>(spec, false); }
std::unique_ptr<Kernel> make_cpu_BatchNormGrad(const KernelSpec& spec) { return make<Backward>(spec, false); }
std::unique_ptr<Kernel> make_cpu_BatchNormInference(const KernelSpec& spec) { return make<Forward>(spec, true); }
std::unique_ptr<Kernel> make_cpu_BatchNormInferenceGrad(const KernelSpec& spec) { return make<Backward>(spec, true); }
std::unique_ptr<Kernel> make_cpu_BatchStatistics(const KernelSpec& spec) { return make_float_kernel<Statistics>(spec); }

}  // namespace piper::ops
#endif  // HWY_ONCE
