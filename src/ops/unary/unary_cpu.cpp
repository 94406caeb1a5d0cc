// f32 runs through vector_math; f64 is the plain formula, in libm's precision, that tests compare against.

#include <cmath>
#include <numbers>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector_math.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

using vec::Unary;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
// sqrt(2 / pi)
constexpr double kTanhScale = 0.79788456080286535588;

double value_of(Unary f, double x) {
  switch (f) {
    case Unary::kAbs: return std::abs(x);
    case Unary::kCeil: return std::ceil(x);
    case Unary::kCos: return std::cos(x);
    case Unary::kErf: return std::erf(x);
    case Unary::kExp: return std::exp(x);
    case Unary::kFloor: return std::floor(x);
    case Unary::kGelu: return x * normal_cdf(x);
    case Unary::kGeluTanh: return 0.5 * x * (1 + std::tanh(kTanhScale * (x + 0.044715 * x * x * x)));
    case Unary::kLog: return std::log(x);
    case Unary::kNeg: return -x;
    case Unary::kReciprocal: return 1 / x;
    case Unary::kRelu: return x < 0 ? 0 : x;
    case Unary::kRound: return std::nearbyint(x);
    case Unary::kSigmoid: return sigmoid(x);
    case Unary::kSilu: return x * sigmoid(x);
    case Unary::kSin: return std::sin(x);
    case Unary::kSoftplus: return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    case Unary::kSqrt: return std::sqrt(x);
    case Unary::kTanh: return std::tanh(x);
  }
  return x;
}

// s: the output where vec::grad_reads_output says so, else the input.
double derivative_of(Unary f, double s) {
  switch (f) {
    case Unary::kAbs: return s > 0 ? 1 : s < 0 ? -1 : 0;
    case Unary::kCeil:
    case Unary::kFloor:
    case Unary::kRound: return 0;
    case Unary::kCos: return -std::sin(s);
    case Unary::kErf: return 2 * std::numbers::inv_sqrtpi * std::exp(-s * s);
    case Unary::kExp: return s;
    case Unary::kGelu:
      return normal_cdf(s) + s * std::exp(-0.5 * s * s) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case Unary::kGeluTanh: {
      const double t = std::tanh(kTanhScale * (s + 0.044715 * s * s * s));
      return 0.5 * (1 + t) + 0.5 * s * (1 - t * t) * kTanhScale * (1 + 3 * 0.044715 * s * s);
    }
    case Unary::kLog: return 1 / s;
    case Unary::kNeg: return -1;
    case Unary::kReciprocal: return -s * s;
    case Unary::kRelu: return s > 0 ? 1 : 0;
    case Unary::kSigmoid: return s * (1 - s);
    case Unary::kSilu: return sigmoid(s) * (1 + s * (1 - sigmoid(s)));
    case Unary::kSin: return std::cos(s);
    case Unary::kSoftplus: return sigmoid(s);
    case Unary::kSqrt: return 0.5 / s;
    case Unary::kTanh: return 1 - s * s;
  }
  return 0;
}

std::unique_ptr<Kernel> make_float(Unary f, ir::DType dtype, int64_t n) {
  if (dtype == ir::DType::kF32) {
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const float* x = static_cast<const float*>(in[0]);
      float* y = static_cast<float*>(out[0]);
      parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) { vec::unary(f, x + begin, y + begin, end - begin); });
    });
  }
  return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
    const double* x = static_cast<const double*>(in[0]);
    double* y = static_cast<double*>(out[0]);
    parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) y[i] = value_of(f, x[i]);
    });
  });
}

// Abs, Neg and Relu also fold integer constants.
std::unique_ptr<Kernel> make_integer(Unary f, ir::DType dtype, int64_t n) {
  if (f != Unary::kAbs && f != Unary::kNeg && f != Unary::kRelu) return nullptr;
  auto make = [=](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      for (int64_t i = 0; i < n; i++) {
        const bool negate = f == Unary::kNeg || (f == Unary::kAbs && x[i] < 0);
        y[i] = f == Unary::kRelu ? std::max(x[i], T(0)) : negate ? static_cast<T>(T(0) - x[i]) : x[i];
      }
    });
  };
  switch (dtype) {
    case ir::DType::kI64: return make(TypeTag<int64_t>());
    case ir::DType::kI32: return make(TypeTag<int32_t>());
    case ir::DType::kU8: return make(TypeTag<uint8_t>());
    default: return nullptr;
  }
}

std::unique_ptr<Kernel> make_unary(const KernelSpec& spec) {
  Unary f;
  if (!vec::parse_unary(spec.op, spec.attrs.s("approximate"), &f)) return nullptr;
  const ir::DType dtype = spec.inputs[0].dtype;
  const int64_t n = ir::num_elements(spec.inputs[0].shape);
  const bool real = dtype == ir::DType::kF32 || dtype == ir::DType::kF64;
  return real ? make_float(f, dtype, n) : make_integer(f, dtype, n);
}

}  // namespace

#define PIPER_UNARY(Name) \
  std::unique_ptr<Kernel> make_cpu_##Name(const KernelSpec& spec) { return make_unary(spec); }
PIPER_UNARY(Abs)
PIPER_UNARY(Ceil)
PIPER_UNARY(Cos)
PIPER_UNARY(Erf)
PIPER_UNARY(Exp)
PIPER_UNARY(Floor)
PIPER_UNARY(Gelu)
PIPER_UNARY(Log)
PIPER_UNARY(Neg)
PIPER_UNARY(Reciprocal)
PIPER_UNARY(Relu)
PIPER_UNARY(Round)
PIPER_UNARY(Sigmoid)
PIPER_UNARY(Silu)
PIPER_UNARY(Sin)
PIPER_UNARY(Softplus)
PIPER_UNARY(Sqrt)
PIPER_UNARY(Tanh)
#undef PIPER_UNARY

std::unique_ptr<Kernel> make_cpu_UnaryGrad(const KernelSpec& spec) {
  Unary f;
  if (!vec::parse_unary(spec.attrs.s("fn"), spec.attrs.s("approximate"), &f)) return nullptr;
  const int64_t n = ir::num_elements(spec.inputs[0].shape);
  if (spec.inputs[0].dtype == ir::DType::kF32) {
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const float* saved = static_cast<const float*>(in[0]);
      const float* dy = static_cast<const float*>(in[1]);
      float* dx = static_cast<float*>(out[0]);
      parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
        vec::unary_grad(f, saved + begin, dy + begin, dx + begin, end - begin);
      });
    });
  }
  if (spec.inputs[0].dtype != ir::DType::kF64) return nullptr;
  return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
    const double* saved = static_cast<const double*>(in[0]);
    const double* dy = static_cast<const double*>(in[1]);
    double* dx = static_cast<double*>(out[0]);
    parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) dx[i] = derivative_of(f, saved[i]) * dy[i];
    });
  });
}

std::unique_ptr<Kernel> make_cpu_IsNaN(const KernelSpec& spec) {
  const int64_t n = ir::num_elements(spec.inputs[0].shape);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      bool* y = static_cast<bool*>(out[0]);
      parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) y[i] = std::isnan(x[i]);
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_Not(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != ir::DType::kBool) return nullptr;
  const int64_t n = ir::num_elements(spec.inputs[0].shape);
  return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
    const bool* x = static_cast<const bool*>(in[0]);
    bool* y = static_cast<bool*>(out[0]);
    parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) y[i] = !x[i];
    });
  });
}

}  // namespace piper::ops
