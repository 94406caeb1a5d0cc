#include <algorithm>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/kernel.h"

namespace piper::ops {

std::unique_ptr<Kernel> make_cpu_Trilu(const KernelSpec& spec) {
  const std::vector<int64_t>& shape = spec.inputs[0].shape;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  const int64_t all_rows = columns > 0 ? ir::num_elements(shape) / columns : 0;
  const bool upper = spec.attrs.i("upper", 1) != 0;
  // Far diagonals are all the same, and rows + k must not overflow.
  const int64_t k = std::clamp(spec.attrs.i("k"), -rows - 1, columns + 1);
  return visit_size(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_rows(all_rows, columns, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
          // Upper keeps columns from `cut`, lower those before it.
          const int64_t cut = std::clamp<int64_t>(r % rows + k + (upper ? 0 : 1), 0, columns);
          const T* from = x + r * columns;
          T* to = y + r * columns;
          std::fill(upper ? to : to + cut, upper ? to + cut : to + columns, T(0));
          std::copy(upper ? from + cut : from, upper ? from + columns : from + cut, upper ? to + cut : to);
        }
      });
    });
  });
}

}  // namespace piper::ops
