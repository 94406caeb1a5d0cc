#include <algorithm>
#include <numeric>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

// Rows along a dim: row r starts at base(r), its elements are `inner` apart.
struct Rows {
  int64_t count = 1, rows = 1, inner = 1;

  Rows(const std::vector<int64_t>& shape, size_t axis) : count(shape[axis]) {
    int64_t outer = 1;
    for (size_t i = 0; i < shape.size(); i++) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
    rows = outer * inner;
  }
  int64_t base(int64_t r, int64_t along) const { return r / inner * along * inner + r % inner; }
};

std::unique_ptr<Kernel> make_arg(const KernelSpec& spec, bool largest) {
  const Rows rows(spec.inputs[0].shape, static_cast<size_t>(spec.attrs.i("axis")));
  const bool last = spec.attrs.i("last") != 0;
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      int64_t* y = static_cast<int64_t*>(out[0]);
      parallel_rows(rows.rows, rows.count, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
          const T* row = x + rows.base(r, rows.count);
          int64_t best = 0;
          for (int64_t k = 1; k < rows.count; k++) {
            const T a = row[k * rows.inner], b = row[best * rows.inner];
            if ((largest ? a > b : a < b) || (last && a == b)) best = k;
          }
          y[r] = best;
        }
      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_ArgMax(const KernelSpec& spec) { return make_arg(spec, true); }
std::unique_ptr<Kernel> make_cpu_ArgMin(const KernelSpec& spec) { return make_arg(spec, false); }

std::unique_ptr<Kernel> make_cpu_TopK(const KernelSpec& spec) {
  const Rows rows(spec.inputs[0].shape, static_cast<size_t>(spec.attrs.i("axis")));
  const int64_t k = spec.attrs.i("k");
  const bool largest = spec.attrs.i("largest", 1) != 0;
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    // A row's places, sorted; one list for all rows, so a single thread does them one after the other.
    return kernel_from([=, order = std::vector<int64_t>(static_cast<size_t>(rows.count))](
                           const void* const* in, void* const* out, const RunContext&) mutable {
      T* values = static_cast<T*>(out[0]);
      int64_t* indices = static_cast<int64_t*>(out[1]);
      for (int64_t r = 0; r < rows.rows; r++) {
        const T* row = static_cast<const T*>(in[0]) + rows.base(r, rows.count);
        std::iota(order.begin(), order.end(), 0);
        const auto before = [&](int64_t i, int64_t j) {
          const T a = row[i * rows.inner], b = row[j * rows.inner];
          if (a != b) return largest ? a > b : a < b;
          return i < j;
        };
        std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
        for (int64_t i = 0; i < k; i++) {
          const int64_t at = rows.base(r, k) + i * rows.inner, from = order[static_cast<size_t>(i)];
          values[at] = row[from * rows.inner];
          if (indices) indices[at] = from;
        }
      }
    });
  });
}

}  // namespace piper::ops
