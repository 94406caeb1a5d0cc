#include "ops/cpu/copy.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/vector_math.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_Accumulate(const KernelSpec& spec) {
  const int64_t n = ir::num_elements(spec.inputs[0].shape);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([n](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_pieces(n, kGrain, [&](int64_t begin, int64_t end) {
        if constexpr (std::is_same_v<T, float>) {
          vec::add_to(y + begin, x + begin, end - begin);
        } else {
          for (int64_t i = begin; i < end; i++) y[i] += x[i];
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_Identity(const KernelSpec& spec) { return make_copy(spec); }

}  // namespace piper::ops
