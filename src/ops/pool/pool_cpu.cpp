// Poolings on the CPU. Planes (one channel of one sample) are independent.

#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/window_loops.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

std::vector<int64_t> tail(const std::vector<int64_t>& shape) { return {shape.begin() + 2, shape.end()}; }

// Planes of `in` elements that become, or come from, planes of `out` elements.
struct Pooling {
  Pooling(const ir::Attrs& attrs, const std::vector<int64_t>& large, const std::vector<int64_t>& small)
      : window(window_of(attrs, attrs.ints("kernel"))),
        loops(window, tail(large), tail(small)),
        planes(large[0] * large[1]),
        in(ir::num_elements(tail(large))),
        out(ir::num_elements(tail(small))),
        taps(ir::num_elements(window.kernel)) {}

  template <class Fn>
  void each_plane(const Fn& fn) const {
    parallel_ranges(planes, out * taps, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) fn(p);
    });
  }

  Window window;
  WindowLoops loops;
  int64_t planes, in, out, taps;
};

template <class T>
void max_plane(const Pooling& p, const T* x, T* y, int32_t* index) {
  constexpr T kLowest =
      std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  std::fill(y, y + p.out, kLowest);
  std::fill(index, index + p.out, -1);
  p.loops.each([&](int64_t from, int64_t to, int64_t) {
    const T value = x[from];
    // NaN wins, and stays.
    if (index[to] >= 0 && !(value > y[to]) && value == value) return;
    y[to] = value;
    index[to] = static_cast<int32_t>(from);
  });
}

// By how much each output element divides its sum: its taps on elements, and on padding when that
// counts.
std::vector<double> divisors(const Pooling& p, const std::vector<int64_t>& large, const std::vector<int64_t>& small,
                             bool padding) {
  std::vector<double> counts(1, 1.0);
  for (size_t i = 0; i < p.window.rank(); i++) {
    const Window& w = p.window;
    const int64_t low = padding ? -w.begin[i] : 0, high = large[2 + i] + (padding ? w.end[i] : 0);
    std::vector<double> next;
    for (double before : counts) {
      for (int64_t o = 0; o < small[2 + i]; o++) {
        const auto [first, end] = w.taps(i, o, low, high);
        next.push_back(before * static_cast<double>(end - first));
      }
    }
    counts = std::move(next);
  }
  for (double& count : counts) count = std::max(count, 1.0);
  return counts;
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_MaxPool(const KernelSpec& spec) {
  const Pooling p(spec.attrs, spec.inputs[0].shape, spec.outputs[0].shape);
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([p](const void* const* in, void* const* out, const RunContext&) {
      p.each_plane([&](int64_t plane) {
        max_plane(p, static_cast<const T*>(in[0]) + plane * p.in, static_cast<T*>(out[0]) + plane * p.out,
                  static_cast<int32_t*>(out[1]) + plane * p.out);
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_MaxPoolGrad(const KernelSpec& spec) {
  const int64_t in_size = ir::num_elements(tail(spec.outputs[0].shape)),
                out_size = ir::num_elements(tail(spec.inputs[0].shape));
  const int64_t planes = spec.inputs[0].shape[0] * spec.inputs[0].shape[1];
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      parallel_ranges(planes, in_size, [&](int64_t begin, int64_t end) {
        T* dx = static_cast<T*>(out[0]);
        std::fill(dx + begin * in_size, dx + end * in_size, T(0));
        for (int64_t p = begin; p < end; p++) {
          const T* dy = static_cast<const T*>(in[0]) + p * out_size;
          const int32_t* index = static_cast<const int32_t*>(in[1]) + p * out_size;
          for (int64_t i = 0; i < out_size; i++) {
            if (index[i] >= 0) dx[p * in_size + index[i]] += dy[i];
          }
        }
      });
    });
  });
}

// ONNX numbers the elements of the whole tensor, so samples count from the batch's first.
std::unique_ptr<Kernel> make_cpu_MaxPoolIndices(const KernelSpec& spec) {
  const std::vector<int64_t> planes = spec.attrs.ints("planes");
  const std::vector<int64_t> sizes(planes.begin() + 1, planes.end());
  const int64_t plane = ir::num_elements(sizes), channels = planes[0], rows = spec.attrs.i("rows");
  const int64_t out_size = ir::num_elements(tail(spec.inputs[0].shape)), count = ir::num_elements(spec.inputs[0].shape);
  const bool column_major = spec.attrs.i("column_major") != 0;
  auto number = [=](int64_t index) {
    if (!column_major || index < 0) return index;
    int64_t result = 0;
    for (size_t i = sizes.size(), rest = static_cast<size_t>(index); i-- > 0; rest /= static_cast<size_t>(sizes[i])) {
      const int64_t before = std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(i), int64_t{1},
                                             std::multiplies<>());
      result += static_cast<int64_t>(rest) % sizes[i] * before;
    }
    return result;
  };
  return kernel_from([=](const void* const* in, void* const* out, const RunContext& context) {
    const int64_t first = context.sample_start * rows * channels;
    for (int64_t i = 0; i < count; i++) {
      static_cast<int64_t*>(out[0])[i] = (first + i / out_size) * plane + number(static_cast<const int32_t*>(in[0])[i]);
    }
  });
}

std::unique_ptr<Kernel> make_cpu_AveragePool(const KernelSpec& spec) {
  const Pooling p(spec.attrs, spec.inputs[0].shape, spec.outputs[0].shape);
  const std::vector<double> divisor =
      divisors(p, spec.inputs[0].shape, spec.outputs[0].shape, spec.attrs.i("count_include_pad") != 0);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      p.each_plane([&](int64_t plane) {
        const T* x = static_cast<const T*>(in[0]) + plane * p.in;
        T* y = static_cast<T*>(out[0]) + plane * p.out;
        std::fill(y, y + p.out, T(0));
        p.loops.each([&](int64_t from, int64_t to, int64_t) { y[to] += x[from]; });
        for (int64_t i = 0; i < p.out; i++) y[i] /= static_cast<T>(divisor[static_cast<size_t>(i)]);
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_AveragePoolGrad(const KernelSpec& spec) {
  const Pooling p(spec.attrs, spec.outputs[0].shape, spec.inputs[0].shape);
  const std::vector<double> divisor =
      divisors(p, spec.outputs[0].shape, spec.inputs[0].shape, spec.attrs.i("count_include_pad") != 0);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      p.each_plane([&](int64_t plane) {
        const T* dy = static_cast<const T*>(in[0]) + plane * p.out;
        T* dx = static_cast<T*>(out[0]) + plane * p.in;
        std::fill(dx, dx + p.in, T(0));
        p.loops.each([&](int64_t from, int64_t to, int64_t) {
          dx[from] += dy[to] / static_cast<T>(divisor[static_cast<size_t>(to)]);
        });
      });
    });
  });
}

}  // namespace piper::ops
