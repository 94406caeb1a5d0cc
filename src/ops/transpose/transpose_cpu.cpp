// Where the innermost dim stays innermost, rows are copied (splitting and merging attention heads). Where another dim of
// the input becomes innermost, tiles are turned so that neither side is read or written in long strides.

#include "ops/cpu/dispatch.h"
#include "ops/cpu/strided.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

constexpr int64_t kTile = 32;

template <class T>
class Tiled final : public Kernel {
 public:
  // shape and strides: of the result, `strides` being the input's. The result's dim `turned` has input stride 1.
  Tiled(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, size_t turned) {
    const std::vector<int64_t> dense = dense_strides(shape);
    columns_ = shape.back();
    column_stride_ = strides.back();
    rows_ = shape[turned];
    row_stride_ = dense[turned];
    for (size_t i = 0; i + 1 < shape.size(); i++) {
      if (i == turned) continue;
      outer_.push_back({shape[i], strides[i], dense[i]});
      outer_count_ *= shape[i];
    }
  }

  void run(const void* const* in, void* const* out, const RunContext&) override {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    const int64_t bands = (rows_ + kTile - 1) / kTile;
    parallel_rows(outer_count_ * bands, kTile * columns_, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; task++) {
        int64_t from = 0, to = 0, rest = task / bands;
        for (size_t i = outer_.size(); i-- > 0;) {
          from += rest % outer_[i].size * outer_[i].in_stride;
          to += rest % outer_[i].size * outer_[i].out_stride;
          rest /= outer_[i].size;
        }
        turn_band(x + from, y + to, task % bands * kTile);
      }
    });
  }

 private:
  void turn_band(const T* x, T* y, int64_t row) const {
    const int64_t last_row = std::min(rows_, row + kTile);
    for (int64_t column = 0; column < columns_; column += kTile) {
      const int64_t last_column = std::min(columns_, column + kTile);
      for (int64_t r = row; r < last_row; r++) {
        for (int64_t c = column; c < last_column; c++) y[r * row_stride_ + c] = x[c * column_stride_ + r];
      }
    }
  }

  struct Outer {
    int64_t size, in_stride, out_stride;
  };
  std::vector<Outer> outer_;
  int64_t outer_count_ = 1;
  int64_t rows_ = 1, row_stride_ = 1, columns_ = 1, column_stride_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_Transpose(const KernelSpec& spec) {
  const std::vector<int64_t> perm = spec.attrs.ints("perm");
  const std::vector<int64_t> dense = dense_strides(spec.inputs[0].shape);
  // Dims of 1 carry no order.
  std::vector<int64_t> shape, strides;
  for (size_t i = 0; i < perm.size(); i++) {
    const int64_t size = spec.outputs[0].shape[i];
    if (size == 1) continue;
    shape.push_back(size);
    strides.push_back(dense[static_cast<size_t>(perm[i])]);
  }
  size_t turned = 0;
  while (turned < strides.size() && strides[turned] != 1) turned++;
  return visit_size(spec.inputs[0].dtype, [&](auto tag) -> std::unique_ptr<Kernel> {
    using T = tag_type<decltype(tag)>;
    if (turned + 1 < strides.size()) return std::make_unique<Tiled<T>>(shape, strides, turned);
    return kernel_from([loop = StridedLoop(shape, {strides})](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      loop.run([&](int64_t at, int64_t count, const int64_t* offset) {
        std::copy(x + offset[0], x + offset[0] + count, y + at);
      });
    });
  });
}

}  // namespace piper::ops
