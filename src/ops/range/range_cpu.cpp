#include "ops/cpu/dispatch.h"
#include "ops/kernel.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_Range(const KernelSpec& spec) {
  const int64_t n = ir::num_elements(spec.outputs[0].shape);
  const double start = spec.attrs.f("start"), delta = spec.attrs.f("delta", 1);
  return visit_dtype(spec.outputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const*, void* const* out, const RunContext&) {
      T* y = static_cast<T*>(out[0]);
      for (int64_t i = 0; i < n; i++) y[i] = static_cast<T>(start + static_cast<double>(i) * delta);
    });
  });
}

}  // namespace piper::ops
