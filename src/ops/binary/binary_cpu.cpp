// f32 arithmetic runs through vector_math, everything else is a plain loop over the runs of the broadcast.

#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/strided.h"
#include "ops/cpu/vector_math.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

StridedLoop loop_of(const KernelSpec& spec) {
  return StridedLoop::broadcast(spec.outputs[0].shape, {spec.inputs[0].shape, spec.inputs[1].shape});
}

std::unique_ptr<Kernel> make_f32(const KernelSpec& spec, vec::Binary f) {
  return kernel_from([loop = loop_of(spec), f](const void* const* in, void* const* out, const RunContext&) {
    const float* a = static_cast<const float*>(in[0]);
    const float* b = static_cast<const float*>(in[1]);
    float* y = static_cast<float*>(out[0]);
    loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
      vec::binary(f, a + offset[0], loop.inner_stride(0), b + offset[1], loop.inner_stride(1), y + at, count);
    });
  });
}

template <class A, class B, class R, class Fn>
std::unique_ptr<Kernel> make_loop(const KernelSpec& spec, Fn fn) {
  return kernel_from([loop = loop_of(spec), fn](const void* const* in, void* const* out, const RunContext&) {
    const int64_t sa = loop.inner_stride(0), sb = loop.inner_stride(1);
    loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
      const A* a = static_cast<const A*>(in[0]) + offset[0];
      const B* b = static_cast<const B*>(in[1]) + offset[1];
      R* y = static_cast<R*>(out[0]) + at;
      for (int64_t i = 0; i < count; i++) y[i] = static_cast<R>(fn(a[i * sa], b[i * sb]));
    });
  });
}

// The kernel for operands of one arithmetic type.
template <class Fn>
std::unique_ptr<Kernel> make_arithmetic(const KernelSpec& spec, Fn fn) {
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) -> std::unique_ptr<Kernel> {
    using T = tag_type<decltype(tag)>;
    if constexpr (std::is_same_v<T, bool>) {
      return nullptr;
    } else {
      return make_loop<T, T, T>(spec, fn);
    }
  });
}

template <class Fn>
std::unique_ptr<Kernel> make_vector_or_loop(const KernelSpec& spec, vec::Binary f, Fn fn) {
  return spec.inputs[0].dtype == ir::DType::kF32 ? make_f32(spec, f) : make_arithmetic(spec, fn);
}

template <class Fn>
std::unique_ptr<Kernel> make_comparison(const KernelSpec& spec, Fn fn) {
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return make_loop<T, T, bool>(spec, fn);
  });
}

template <class Fn>
std::unique_ptr<Kernel> make_logical(const KernelSpec& spec, Fn fn) {
  if (spec.inputs[0].dtype != ir::DType::kBool) return nullptr;
  return make_loop<bool, bool, bool>(spec, fn);
}

// Integers wrap instead of overflowing; division by zero gives 0 and does not trap.
template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;

constexpr auto kAdd = [](auto a, auto b) { return Wide<decltype(a)>(a) + Wide<decltype(a)>(b); };
constexpr auto kSub = [](auto a, auto b) { return Wide<decltype(a)>(a) - Wide<decltype(a)>(b); };
constexpr auto kMul = [](auto a, auto b) { return Wide<decltype(a)>(a) * Wide<decltype(a)>(b); };
constexpr auto kDiv = [](auto a, auto b) -> decltype(a) {
  using T = decltype(a);
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == T(-1)) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(a));
    }
  }
  return static_cast<T>(a / b);
};
constexpr auto kMax = [](auto a, auto b) { return a != a || a > b ? a : b; };
constexpr auto kMin = [](auto a, auto b) { return a != a || a < b ? a : b; };

// fmod: sign of the dividend; otherwise (integers) of the divisor.
struct Mod {
  bool fmod;
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (b == T(-1)) return 0;
      }
      const T r = static_cast<T>(a % b);
      return !fmod && r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
    } else {
      return std::fmod(a, b);
    }
  }
};

struct Pow {
  template <class A, class B>
  double operator()(A a, B b) const {
    return std::pow(static_cast<double>(a), static_cast<double>(b));
  }
};

// A single exponent is nearly always 2, 3, 1/2 or the like.
std::unique_ptr<Kernel> make_f32_power(const KernelSpec& spec, ir::DType exponent_type) {
  const int64_t n = ir::num_elements(spec.outputs[0].shape);
  return kernel_from([n, exponent_type](const void* const* in, void* const* out, const RunContext&) {
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    const double e = visit_dtype(exponent_type, [&](auto tag) {
      return static_cast<double>(*static_cast<const tag_type<decltype(tag)>*>(in[1]));
    });
    parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
      const float* from = x + begin;
      float* to = y + begin;
      const int64_t count = end - begin;
      if (e == 1) {
        std::copy(from, from + count, to);
      } else if (e == 2 || e == 3) {
        vec::binary(vec::Binary::kMul, from, 1, from, 1, to, count);
        if (e == 3) vec::binary(vec::Binary::kMul, to, 1, from, 1, to, count);
      } else if (e == 0.5) {
        vec::unary(vec::Unary::kSqrt, from, to, count);
      } else if (e == -1) {
        vec::unary(vec::Unary::kReciprocal, from, to, count);
      } else {
        for (int64_t i = 0; i < count; i++) to[i] = std::pow(from[i], static_cast<float>(e));
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_Add(const KernelSpec& spec) { return make_vector_or_loop(spec, vec::Binary::kAdd, kAdd); }
std::unique_ptr<Kernel> make_cpu_Sub(const KernelSpec& spec) { return make_vector_or_loop(spec, vec::Binary::kSub, kSub); }
std::unique_ptr<Kernel> make_cpu_Mul(const KernelSpec& spec) { return make_vector_or_loop(spec, vec::Binary::kMul, kMul); }
std::unique_ptr<Kernel> make_cpu_Div(const KernelSpec& spec) { return make_vector_or_loop(spec, vec::Binary::kDiv, kDiv); }
std::unique_ptr<Kernel> make_cpu_Max(const KernelSpec& spec) { return make_vector_or_loop(spec, vec::Binary::kMax, kMax); }
std::unique_ptr<Kernel> make_cpu_Min(const KernelSpec& spec) { return make_vector_or_loop(spec, vec::Binary::kMin, kMin); }

std::unique_ptr<Kernel> make_cpu_Mod(const KernelSpec& spec) {
  return make_arithmetic(spec, Mod{spec.attrs.i("fmod", 0) != 0});
}

std::unique_ptr<Kernel> make_cpu_Pow(const KernelSpec& spec) {
  const ir::DType base = spec.inputs[0].dtype, exponent = spec.inputs[1].dtype;
  const bool one = ir::num_elements(spec.inputs[1].shape) == 1;
  if (base == ir::DType::kF32 && one && exponent != ir::DType::kBF16) return make_f32_power(spec, exponent);
  return visit_dtype(base, [&](auto base_tag) {
    return visit_dtype(exponent, [&](auto exponent_tag) {
      using A = tag_type<decltype(base_tag)>;
      return make_loop<A, tag_type<decltype(exponent_tag)>, A>(spec, Pow());
    });
  });
}

std::unique_ptr<Kernel> make_cpu_Equal(const KernelSpec& spec) {
  return make_comparison(spec, [](auto a, auto b) { return a == b; });
}
std::unique_ptr<Kernel> make_cpu_Greater(const KernelSpec& spec) {
  return make_comparison(spec, [](auto a, auto b) { return a > b; });
}
std::unique_ptr<Kernel> make_cpu_GreaterOrEqual(const KernelSpec& spec) {
  return make_comparison(spec, [](auto a, auto b) { return a >= b; });
}
std::unique_ptr<Kernel> make_cpu_Less(const KernelSpec& spec) {
  return make_comparison(spec, [](auto a, auto b) { return a < b; });
}
std::unique_ptr<Kernel> make_cpu_LessOrEqual(const KernelSpec& spec) {
  return make_comparison(spec, [](auto a, auto b) { return a <= b; });
}
std::unique_ptr<Kernel> make_cpu_And(const KernelSpec& spec) {
  return make_logical(spec, [](bool a, bool b) { return a && b; });
}
std::unique_ptr<Kernel> make_cpu_Or(const KernelSpec& spec) {
  return make_logical(spec, [](bool a, bool b) { return a || b; });
}

}  // namespace piper::ops
