#include <algorithm>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/kernel.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_Fill(const KernelSpec& spec) {
  const int64_t n = ir::num_elements(spec.outputs[0].shape);
  const double value = spec.attrs.f("value");
  return visit_dtype(spec.outputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const*, void* const* out, const RunContext&) {
      T* y = static_cast<T*>(out[0]);
      parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, static_cast<T>(value)); });
    });
  });
}

}  // namespace piper::ops
