#include "ops/cpu/copy.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/strided.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

// The part as a strided view of the whole: where it begins, and a loop over it.
struct View {
  int64_t begin = 0;
  StridedLoop loop;

  View(const KernelSpec& spec, const std::vector<int64_t>& whole, const std::vector<int64_t>& part)
      : loop(part, {strides_of(spec, whole)}) {
    const std::vector<int64_t> dense = dense_strides(whole), starts = spec.attrs.ints("starts");
    for (size_t i = 0; i < whole.size(); i++) begin += starts[i] * dense[i];
  }

  static std::vector<int64_t> strides_of(const KernelSpec& spec, const std::vector<int64_t>& whole) {
    std::vector<int64_t> strides = dense_strides(whole);
    const std::vector<int64_t> steps = spec.attrs.ints("steps");
    for (size_t i = 0; i < whole.size(); i++) strides[i] *= steps[i];
    return strides;
  }
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_Slice(const KernelSpec& spec) {
  View view(spec, spec.inputs[0].shape, spec.outputs[0].shape);
  return visit_size(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([view](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]) + view.begin;
      T* y = static_cast<T*>(out[0]);
      const int64_t step = view.loop.inner_stride(0);
      view.loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
        const T* from = x + offset[0];
        if (step == 1) {
          std::copy(from, from + count, y + at);
        } else {
          for (int64_t i = 0; i < count; i++) y[at + i] = from[i * step];
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_SliceGrad(const KernelSpec& spec) {
  View view(spec, spec.outputs[0].shape, spec.inputs[0].shape);
  const int64_t bytes = ir::num_elements(spec.outputs[0].shape) * ir::dtype_size(spec.outputs[0].dtype);
  return visit_size(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([view, bytes](const void* const* in, void* const* out, const RunContext&) {
      zero_bytes(out[0], bytes);
      const T* dy = static_cast<const T*>(in[0]);
      T* dx = static_cast<T*>(out[0]) + view.begin;
      const int64_t step = view.loop.inner_stride(0);
      view.loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
        T* to = dx + offset[0];
        for (int64_t i = 0; i < count; i++) to[i * step] = dy[at + i];
      });
    });
  });
}

}  // namespace piper::ops
