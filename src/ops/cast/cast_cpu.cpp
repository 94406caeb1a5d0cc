#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

// Floats become integers by truncation; what does not fit becomes the nearest that does, NaN 0.
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(x)) return 0;
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From kHigh = static_cast<From>(std::numeric_limits<To>::max());
    if (x <= kLow) return std::numeric_limits<To>::min();
    if (x >= kHigh) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_Cast(const KernelSpec& spec) {
  const int64_t n = ir::num_elements(spec.inputs[0].shape);
  return visit_dtype(spec.inputs[0].dtype, [&](auto from) {
    return visit_dtype(spec.outputs[0].dtype, [&](auto to) {
      using From = tag_type<decltype(from)>;
      using To = tag_type<decltype(to)>;
      return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
        const From* x = static_cast<const From*>(in[0]);
        To* y = static_cast<To*>(out[0]);
        parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; i++) y[i] = convert<To>(x[i]);
        });
      });
    });
  });
}

}  // namespace piper::ops
