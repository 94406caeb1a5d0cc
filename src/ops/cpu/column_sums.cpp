#include "ops/cpu/column_sums.h"

namespace piper::ops {

namespace {

template <class T>
class ColumnSums final : public Kernel {
 public:
  ColumnSums(int64_t rows, int64_t n, bool accumulate) : rows_(rows), n_(n), accumulate_(accumulate) {}
  size_t scratch_bytes() const override {
    return static_cast<size_t>(fixed_blocks(rows_, kRowBlock) * n_) * sizeof(T);
  }
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
    constexpr int64_t kWidth = 1024;  // so that the sums stay in the first-level cache
    int64_t last = std::min(rows_, (b + 1) * kRowBlock);
    for (int64_t j0 = 0; j0 < n_; j0 += kWidth) {
      int64_t j1 = std::min(n_, j0 + kWidth);
      std::fill(sum + j0, sum + j1, T(0));
      for (int64_t i = b * kRowBlock; i < last; i++) {
        for (int64_t j = j0; j < j1; j++) sum[j] += x[i * n_ + j];
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
