// Losses that are sums over elements, on the CPU: partial sums of fixed blocks in f64, added in order.

#include "ops/cpu/float_kernel.h"
#include "ops/cpu/ranges.h"

namespace piper::ops {

namespace {

constexpr int64_t kBlock = 4096;

// Sum of term(in, i) over all elements of the first input.
template <class T, class Term>
class SumKernel final : public Kernel {
 public:
  explicit SumKernel(const KernelSpec& spec)
      : n_(ir::num_elements(spec.inputs[0].shape)), accumulate_(spec.attrs.i("accumulate") & 1) {}
  size_t scratch_bytes() const override { return static_cast<size_t>(fixed_blocks(n_, kBlock)) * sizeof(double); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    double* partial = static_cast<double*>(context.scratch);
    int64_t blocks = fixed_blocks(n_, kBlock);
    parallel_ranges(blocks, kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b++) partial[b] = block(in, b);
    });
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) sum += partial[b];
    double* y = static_cast<double*>(out[0]);
    *y = accumulate_ ? *y + sum : sum;
  }

 private:
  double block(const void* const* in, int64_t b) const {
    double sum = 0;
    int64_t last = std::min(n_, (b + 1) * kBlock);
    for (int64_t i = b * kBlock; i < last; i++) sum += Term::at(in, i);
    return sum;
  }
  int64_t n_;
  bool accumulate_;
};

template <class T>
struct Squared {
  static double at(const void* const* in, int64_t i) {
    double d =
        static_cast<double>(static_cast<const T*>(in[0])[i]) - static_cast<double>(static_cast<const T*>(in[1])[i]);
    return d * d;
  }
};
template <class T>
struct Plain {
  static double at(const void* const* in, int64_t i) { return static_cast<double>(static_cast<const T*>(in[0])[i]); }
};

template <class T>
using MseLoss = SumKernel<T, Squared<T>>;
template <class T>
using MeanLoss = SumKernel<T, Plain<T>>;

// What a gradient is multiplied with: nothing counted, no gradient.
double per_element(double weight, const void* count) {
  double n = *static_cast<const double*>(count);
  return n == 0 ? 0 : weight / n;
}

template <class T>
class MseGrad final : public Kernel {
 public:
  explicit MseGrad(const KernelSpec& spec)
      : n_(ir::num_elements(spec.inputs[0].shape)), weight_(spec.attrs.f("weight", 1)) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    const T *p = static_cast<const T*>(in[0]), *t = static_cast<const T*>(in[1]);
    T* dp = static_cast<T*>(out[0]);
    const T factor = static_cast<T>(2 * per_element(weight_, in[2]));
    parallel_ranges(n_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) dp[i] = factor * (p[i] - t[i]);
    });
  }

 private:
  int64_t n_;
  double weight_;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_MseLoss(const KernelSpec& spec) { return make_float_kernel<MseLoss>(spec); }
std::unique_ptr<Kernel> make_cpu_MseGrad(const KernelSpec& spec) { return make_float_kernel<MseGrad>(spec); }
std::unique_ptr<Kernel> make_cpu_MeanLoss(const KernelSpec& spec) { return make_float_kernel<MeanLoss>(spec); }

std::unique_ptr<Kernel> make_cpu_MeanLossGrad(const KernelSpec& spec) {
  ir::DType dtype = spec.outputs[0].dtype;
  if (dtype != ir::DType::kF32 && dtype != ir::DType::kF64) return nullptr;
  int64_t n = ir::num_elements(spec.outputs[0].shape);
  double weight = spec.attrs.f("weight", 1);
  return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
    double value = per_element(weight, in[0]);
    if (dtype == ir::DType::kF32) std::fill_n(static_cast<float*>(out[0]), n, static_cast<float>(value));
    if (dtype == ir::DType::kF64) std::fill_n(static_cast<double*>(out[0]), n, value);
  });
}

std::unique_ptr<Kernel> make_cpu_CountElements(const KernelSpec& spec) {
  double n = static_cast<double>(ir::num_elements(spec.inputs.empty() ? spec.attrs.ints("shape") : spec.inputs[0].shape));
  bool accumulate = spec.attrs.i("accumulate") & 1;
  return kernel_from([=](const void* const*, void* const* out, const RunContext&) {
    double* y = static_cast<double*>(out[0]);
    *y = accumulate ? *y + n : n;
  });
}

}  // namespace piper::ops
