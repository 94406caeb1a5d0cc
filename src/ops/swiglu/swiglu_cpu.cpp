// SwiGlu on the CPU: one pass forward, one pass backward.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/swiglu/swiglu_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward(const T* gate, const T* up, T* y, int64_t n) {
  const hn::ScalableTag<T> d;
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto g = load_some(d, gate + i, count);
    store_some(d, hn::Mul(hn::Mul(g, sigmoid(d, g)), load_some(d, up + i, count)), y + i, count);
  });
}

// silu(g) = g s with s = sigmoid(g); its derivative is s (1 + g (1 - s)).
template <class T>
void backward(const T* gate, const T* up, const T* dy, T* dgate, T* dup, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto one = hn::Set(d, T(1));
  walk(d, n, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto g = load_some(d, gate + i, count), v = load_some(d, dy + i, count);
    const auto s = sigmoid(d, g);
    const auto slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
    const auto u = load_some(d, up + i, count);
    if (dgate) store_some(d, hn::Mul(hn::Mul(v, u), slope), dgate + i, count);
    if (dup) store_some(d, hn::Mul(v, hn::Mul(g, s)), dup + i, count);
  });
}

void swiglu_f32(const float* gate, const float* up, float* y, int64_t n) { forward(gate, up, y, n); }
void swiglu_f64(const double* gate, const double* up, double* y, int64_t n) { forward(gate, up, y, n); }
void swiglu_grad_f32(const float* gate, const float* up, const float* dy, float* dgate, float* dup, int64_t n) {
  backward(gate, up, dy, dgate, dup, n);
}
void swiglu_grad_f64(const double* gate, const double* up, const double* dy, double* dgate, double* dup, int64_t n) {
  backward(gate, up, dy, dgate, dup, n);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

namespace {

HWY_EXPORT(swiglu_f32);
HWY_EXPORT(swiglu_f64);
HWY_EXPORT(swiglu_grad_f32);
HWY_EXPORT(swiglu_grad_f64);

constexpr int64_t kCost = 4;  // an element with an exponential, in plain ones

template <class T>
class SwiGluKernel final : public Kernel {
 public:
  explicit SwiGluKernel(const KernelSpec& spec) : n_(ir::num_elements(spec.inputs[0].shape)) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    const T *gate = static_cast<const T*>(in[0]), *up = static_cast<const T*>(in[1]);
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(n_, kCost, [&](int64_t begin, int64_t end) {
      if constexpr (sizeof(T) == 4) {
        HWY_DYNAMIC_DISPATCH(swiglu_f32)(gate + begin, up + begin, y + begin, end - begin);
      } else {
        HWY_DYNAMIC_DISPATCH(swiglu_f64)(gate + begin, up + begin, y + begin, end - begin);
      }
    });
  }

 private:
  int64_t n_;
};

template <class T>
class SwiGluGradKernel final : public Kernel {
 public:
  explicit SwiGluGradKernel(const KernelSpec& spec) : n_(ir::num_elements(spec.inputs[0].shape)) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    const T *gate = static_cast<const T*>(in[0]), *up = static_cast<const T*>(in[1]),
            *dy = static_cast<const T*>(in[2]);
    parallel_ranges(n_, kCost, [&](int64_t begin, int64_t end) {
      T* dgate = out[0] ? static_cast<T*>(out[0]) + begin : nullptr;
      T* dup = out[1] ? static_cast<T*>(out[1]) + begin : nullptr;
      if constexpr (sizeof(T) == 4) {
        HWY_DYNAMIC_DISPATCH(swiglu_grad_f32)(gate + begin, up + begin, dy + begin, dgate, dup, end - begin);
      } else {
        HWY_DYNAMIC_DISPATCH(swiglu_grad_f64)(gate + begin, up + begin, dy + begin, dgate, dup, end - begin);
      }
    });
  }

 private:
  int64_t n_;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_SwiGlu(const KernelSpec& spec) { return make_float_kernel<SwiGluKernel>(spec); }
std::unique_ptr<Kernel> make_cpu_SwiGluGrad(const KernelSpec& spec) {
  return make_float_kernel<SwiGluGradKernel>(spec);
}

}  // namespace piper::ops
#endif  // HWY_ONCE
