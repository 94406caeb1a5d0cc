// Gather copies rows; its gradient adds rows in the order of the indices, each task its own columns, so that equal
// indices meet without atomics and always in the same order.

#include <algorithm>
#include <limits>

#include "ops/cpu/copy.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/strided.h"
#include "ops/cpu/vector_math.h"

namespace piper::ops {

namespace {

// Index i of either type, counted from the front; -1 when out of range.
struct Indices {
  ir::DType dtype;
  int64_t limit;  // size of the dim they point into

  int64_t at(const void* indices, int64_t i) const {
    int64_t index = dtype == ir::DType::kI64 ? static_cast<const int64_t*>(indices)[i]
                                             : static_cast<const int32_t*>(indices)[i];
    if (index < 0) index += limit;
    return index < 0 || index >= limit ? -1 : index;
  }
};

bool index_type(ir::DType dtype) { return dtype == ir::DType::kI64 || dtype == ir::DType::kI32; }

template <class T>
constexpr T invalid_value() {
  return std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : T(0);
}

// data[outer, limit, inner] against result[outer, count, inner].
struct Extents {
  int64_t outer = 1, inner = 1, limit = 0, count = 0;

  Extents(const std::vector<int64_t>& data, const std::vector<int64_t>& indices, size_t axis)
      : limit(data[axis]), count(ir::num_elements(indices)) {
    for (size_t i = 0; i < data.size(); i++) {
      if (i < axis) outer *= data[i];
      if (i > axis) inner *= data[i];
    }
  }
};

template <class T>
void add_row(T* to, const T* from, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    vec::add_to(to, from, n);
  } else {
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
  }
}

// For GatherElements and ScatterElements: the positions of the indices as (outer, along the axis, inner), and where they lie in the data.
struct ElementLoop {
  std::vector<int64_t> outer_sizes, inner_sizes, outer_strides, inner_strides;  // strides of the data
  int64_t outer = 1, count = 1, inner = 1, axis_stride = 1;

  ElementLoop(const std::vector<int64_t>& data, const std::vector<int64_t>& indices, size_t axis) {
    const std::vector<int64_t> strides = dense_strides(data);
    outer_sizes.assign(indices.begin(), indices.begin() + static_cast<int64_t>(axis));
    inner_sizes.assign(indices.begin() + static_cast<int64_t>(axis) + 1, indices.end());
    outer_strides.assign(strides.begin(), strides.begin() + static_cast<int64_t>(axis));
    inner_strides.assign(strides.begin() + static_cast<int64_t>(axis) + 1, strides.end());
    outer = ir::num_elements(outer_sizes);
    inner = ir::num_elements(inner_sizes);
    count = indices[axis];
    axis_stride = strides[axis];
  }

  static int64_t offset(int64_t index, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    int64_t at = 0;
    for (size_t i = sizes.size(); i-- > 0;) {
      at += index % sizes[i] * strides[i];
      index /= sizes[i];
    }
    return at;
  }

  // fn(position among the indices, offset of index 0 in the data), each (outer, inner) pair on one thread and in order.
  template <class Fn>
  void run(const Fn& fn) const {
    parallel_rows(outer * inner, count, [&](int64_t begin, int64_t end) {
      for (int64_t pair = begin; pair < end; pair++) {
        const int64_t o = pair / inner, i = pair % inner;
        const int64_t base = offset(o, outer_sizes, outer_strides) + offset(i, inner_sizes, inner_strides);
        for (int64_t k = 0; k < count; k++) fn((o * count + k) * inner + i, base);
      }
    });
  }
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_Gather(const KernelSpec& spec) {
  if (!index_type(spec.inputs[1].dtype)) return nullptr;
  const Extents e(spec.inputs[0].shape, spec.inputs[1].shape, static_cast<size_t>(spec.attrs.i("axis")));
  const Indices indices{spec.inputs[1].dtype, e.limit};
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* data = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_rows(e.outer * e.count, e.inner, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row++) {
          const int64_t index = indices.at(in[1], row % e.count);
          T* to = y + row * e.inner;
          if (index < 0) {
            std::fill_n(to, e.inner, invalid_value<T>());
          } else {
            std::copy_n(data + (row / e.count * e.limit + index) * e.inner, e.inner, to);
          }
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_GatherGrad(const KernelSpec& spec) {
  if (!index_type(spec.inputs[1].dtype)) return nullptr;
  const Extents e(spec.outputs[0].shape, spec.inputs[1].shape, static_cast<size_t>(spec.attrs.i("axis")));
  const Indices indices{spec.inputs[1].dtype, e.limit};
  const bool accumulate = spec.attrs.i("accumulate", 0) & 1;
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      // Columns of a task: whole cache lines, and enough of them to be worth reading an index.
      constexpr int64_t kWidth = 128;
      const T* dy = static_cast<const T*>(in[0]);
      T* ddata = static_cast<T*>(out[0]);
      if (!accumulate) zero_bytes(ddata, e.outer * e.limit * e.inner * static_cast<int64_t>(sizeof(T)));
      const int64_t blocks = (e.inner + kWidth - 1) / kWidth;
      parallel_rows(e.outer * blocks, e.count * std::min(e.inner, kWidth), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; task++) {
          const int64_t o = task / blocks, column = task % blocks * kWidth;
          const int64_t width = std::min(kWidth, e.inner - column);
          for (int64_t k = 0; k < e.count; k++) {
            const int64_t index = indices.at(in[1], k);
            if (index < 0) continue;
            add_row(ddata + (o * e.limit + index) * e.inner + column, dy + (o * e.count + k) * e.inner + column, width);
          }
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_GatherElements(const KernelSpec& spec) {
  if (!index_type(spec.inputs[1].dtype)) return nullptr;
  const size_t axis = static_cast<size_t>(spec.attrs.i("axis"));
  const ElementLoop loop(spec.inputs[0].shape, spec.inputs[1].shape, axis);
  const Indices indices{spec.inputs[1].dtype, spec.inputs[0].shape[axis]};
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* data = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      loop.run([&](int64_t position, int64_t base) {
        const int64_t index = indices.at(in[1], position);
        y[position] = index < 0 ? invalid_value<T>() : data[base + index * loop.axis_stride];
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_ScatterElements(const KernelSpec& spec) {
  if (!index_type(spec.inputs[1].dtype)) return nullptr;
  const size_t axis = static_cast<size_t>(spec.attrs.i("axis"));
  const ElementLoop loop(spec.inputs[0].shape, spec.inputs[1].shape, axis);
  const Indices indices{spec.inputs[1].dtype, spec.inputs[0].shape[axis]};
  const bool add = spec.attrs.i("add");
  const int64_t n = ir::num_elements(spec.inputs[0].shape);
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* updates = static_cast<const T*>(in[2]);
      T* y = static_cast<T*>(out[0]);
      copy_bytes(y, in[0], n * static_cast<int64_t>(sizeof(T)));
      loop.run([&](int64_t position, int64_t base) {
        const int64_t index = indices.at(in[1], position);
        if (index < 0) return;
        T& element = y[base + index * loop.axis_stride];
        element = add ? static_cast<T>(element + updates[position]) : updates[position];
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_GatherElementsGrad(const KernelSpec& spec) {
  if (!index_type(spec.inputs[1].dtype)) return nullptr;
  const size_t axis = static_cast<size_t>(spec.attrs.i("axis"));
  const ElementLoop loop(spec.outputs[0].shape, spec.inputs[1].shape, axis);
  const Indices indices{spec.inputs[1].dtype, spec.outputs[0].shape[axis]};
  const bool accumulate = spec.attrs.i("accumulate", 0) & 1;
  const int64_t n = ir::num_elements(spec.outputs[0].shape);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* dy = static_cast<const T*>(in[0]);
      T* ddata = static_cast<T*>(out[0]);
      if (!accumulate) zero_bytes(ddata, n * static_cast<int64_t>(sizeof(T)));
      // Positions that share an element share the (outer, inner) pair, so one thread adds them.
      loop.run([&](int64_t position, int64_t base) {
        const int64_t index = indices.at(in[1], position);
        if (index >= 0) ddata[base + index * loop.axis_stride] += dy[position];
      });
    });
  });
}

}  // namespace piper::ops
