#include "ops/cpu/dispatch.h"
#include "ops/cpu/strided.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

// Calls fn with the stride as a constant where that lets the compiler vectorise.
template <class Fn>
void with_stride(int64_t stride, const Fn& fn) {
  if (stride == 1) {
    fn(std::integral_constant<int64_t, 1>());
  } else {
    fn(std::integral_constant<int64_t, 0>());
  }
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_Where(const KernelSpec& spec) {
  auto loop = StridedLoop::broadcast(spec.outputs[0].shape,
                                     {spec.inputs[0].shape, spec.inputs[1].shape, spec.inputs[2].shape});
  return visit_size(spec.outputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([loop](const void* const* in, void* const* out, const RunContext&) {
      loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
        const uint8_t* __restrict c = static_cast<const uint8_t*>(in[0]) + offset[0];
        const T* __restrict a = static_cast<const T*>(in[1]) + offset[1];
        const T* __restrict b = static_cast<const T*>(in[2]) + offset[2];
        T* __restrict y = static_cast<T*>(out[0]) + at;
        // Dense operands that broadcast have stride 0 or 1 along a run.
        with_stride(loop.inner_stride(0), [&](auto sc) {
          with_stride(loop.inner_stride(1), [&](auto sa) {
            with_stride(loop.inner_stride(2), [&](auto sb) {
              for (int64_t i = 0; i < count; i++) {
                // Both are read, so that there is no branch.
                const T first = a[i * sa], second = b[i * sb];
                y[i] = c[i * sc] ? first : second;
              }
            });
          });
        });
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_WhereGrad(const KernelSpec& spec) {
  auto loop = StridedLoop::broadcast(spec.outputs[0].shape, {spec.inputs[0].shape});
  return visit_float(spec.inputs[1].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([loop](const void* const* in, void* const* out, const RunContext&) {
      const T* dy = static_cast<const T*>(in[1]);
      T* da = static_cast<T*>(out[0]);
      T* db = static_cast<T*>(out[1]);
      loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
        const uint8_t* c = static_cast<const uint8_t*>(in[0]) + offset[0];
        const T* __restrict from = dy + at;
        T* __restrict a = da + at;
        T* __restrict b = db + at;
        with_stride(loop.inner_stride(0), [&](auto step) {
          for (int64_t i = 0; i < count; i++) {
            const bool first = c[i * step] != 0;
            const T value = from[i];
            a[i] = first ? value : T(0);
            b[i] = first ? T(0) : value;
          }
        });
      });
    });
  });
}

}  // namespace piper::ops
