#include "ops/cpu/dispatch.h"
#include "ops/cpu/strided.h"
#include "ops/kernel.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_Expand(const KernelSpec& spec) {
  return visit_size(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    auto loop = StridedLoop::broadcast(spec.outputs[0].shape, {spec.inputs[0].shape});
    return kernel_from([loop](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
        if (loop.inner_stride(0) == 0) {
          std::fill_n(y + at, count, x[offset[0]]);
        } else {
          std::copy_n(x + offset[0], count, y + at);
        }
      });
    });
  });
}

}  // namespace piper::ops
