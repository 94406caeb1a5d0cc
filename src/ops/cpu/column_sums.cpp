#include "ops/cpu/column_sums.h"

namespace piper::ops {

namespace {

template <class T>
class ColumnSums final : public Kernel {
 public:
  ColumnSums(int64_t rows, int64_t n, bool accumulate) : rows_(rows), n_(n), accumulate_(accumulate) {}
  size_t scratch_bytes() const override { return static_cast<size_t>(fixed_blocks(rows_, kRowBlock) * n_) * sizeof(T); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    const T* x = static_cast<const T*>(in[0]);
    T* partial = static_cast<T*>(context.scratch);
    int64_t blocks = fixed_blocks(rows_, kRowBlock);
    parallel_ranges(blocks, kRowBlock * n_, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b++) block(x, b, partial + b * n_);
    });
    sum_partials(partial, blocks, n_, static_cast<T*>(out[0]), accumulate_);
  }

 private:
  void block(const T* x, int64_t b, T* sum) const {
    constexpr int64_t kWidth = 4096;  // so that the sums stay in the first-level cache
    int64_t first = b * kRowBlock, last = std::min(rows_, first + kRowBlock);
    for (int64_t j0 = 0; j0 < n_; j0 += kWidth) {
      int64_t width = std::min(kWidth, n_ - j0), i = first;
      T* s = sum + j0;
      std::fill_n(s, width, T(0));
      for (; i + 4 <= last; i += 4) {
        const T *x0 = x + i * n_ + j0, *x1 = x0 + n_, *x2 = x1 + n_, *x3 = x2 + n_;
        for (int64_t j = 0; j < width; j++) s[j] += (x0[j] + x1[j]) + (x2[j] + x3[j]);
      }
      for (; i < last; i++) {
        for (int64_t j = 0; j < width; j++) s[j] += x[i * n_ + j0 + j];
      }
    }
  }
  int64_t rows_, n_;
  bool accumulate_;
};

}  // namespace

std::unique_ptr<Kernel> make_column_sums(ir::DType dtype, int64_t rows, int64_t n, bool accumulate) {
  if (dtype == ir::DType::kF32) return std::make_unique<ColumnSums<float>>(rows, n, accumulate);
  if (dtype == ir::DType::kF64) return std::make_unique<ColumnSums<double>>(rows, n, accumulate);
  return nullptr;
}

}  // namespace piper::ops
