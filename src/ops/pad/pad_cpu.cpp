#include "ops/cpu/dispatch.h"
#include "ops/cpu/strided.h"
#include "ops/kernel.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_Pad(const KernelSpec& spec) {
  const std::vector<int64_t> strides = dense_strides(spec.outputs[0].shape), begin = spec.attrs.ints("begin");
  int64_t first = 0;
  for (size_t i = 0; i < begin.size(); i++) first += begin[i] * strides[i];
  // A loop over the input, with the output as the strided operand.
  StridedLoop loop(spec.inputs[0].shape, {strides});
  const int64_t n = ir::num_elements(spec.outputs[0].shape);
  const double value = spec.attrs.f("value");
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_pieces(n, kGrain, [&](int64_t from, int64_t to) { std::fill(y + from, y + to, static_cast<T>(value)); });
      const int64_t step = loop.inner_stride(0);
      loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
        T* to = y + first + offset[0];
        for (int64_t i = 0; i < count; i++) to[i * step] = x[at + i];
      });
    });
  });
}

}  // namespace piper::ops
