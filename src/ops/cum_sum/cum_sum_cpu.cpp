#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/kernel.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_CumSum(const KernelSpec& spec) {
  if (spec.inputs[0].dtype == ir::DType::kBool) return nullptr;
  const std::vector<int64_t>& shape = spec.inputs[0].shape;
  const size_t axis = static_cast<size_t>(spec.attrs.i("axis"));
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < shape.size(); i++) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  const int64_t count = shape[axis];
  const bool exclusive = spec.attrs.i("exclusive") != 0, reverse = spec.attrs.i("reverse") != 0;
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_rows(outer * inner, count, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
          const int64_t base = r / inner * count * inner + r % inner;
          T sum = 0;
          for (int64_t k = 0; k < count; k++) {
            const int64_t at = base + (reverse ? count - 1 - k : k) * inner;
            const T before = sum;
            sum = static_cast<T>(sum + x[at]);
            y[at] = exclusive ? before : sum;
          }
        }
      });
    });
  });
}

}  // namespace piper::ops
