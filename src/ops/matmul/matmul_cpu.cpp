// MatMul on the CPU: cuts the operands into batch dims and matrices and hands them to a Gemm.

#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

class MatMulKernel final : public Kernel {
 public:
  explicit MatMulKernel(std::unique_ptr<Gemm> gemm) : gemm_(std::move(gemm)) {}
  size_t scratch_bytes() const override { return gemm_->scratch_bytes(); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    gemm_->run(in[0], in[1], nullptr, out[0], context.scratch);
  }

 private:
  std::unique_ptr<Gemm> gemm_;
};

// The leading dims of an operand, filled with ones to `rank`.
std::vector<int64_t> batch_dims(const std::vector<int64_t>& shape, size_t rank) {
  std::vector<int64_t> dims(rank - (shape.size() - 2), 1);
  dims.insert(dims.end(), shape.begin(), shape.end() - 2);
  return dims;
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_MatMul(const KernelSpec& spec) {
  const std::vector<int64_t>& a = spec.inputs[0].shape;
  const std::vector<int64_t>& b = spec.inputs[1].shape;
  const std::vector<int64_t>& c = spec.outputs[0].shape;
  size_t rank = c.size() - 2;
  GemmSpec gemm;
  gemm.trans_a = spec.attrs.i("trans_a") != 0;
  gemm.trans_b = spec.attrs.i("trans_b") != 0;
  gemm.alpha = spec.attrs.f("alpha", 1);
  gemm.accumulate = spec.attrs.i("accumulate") & 1;
  gemm.m = c[rank];
  gemm.n = c[rank + 1];
  gemm.k = a[a.size() - (gemm.trans_a ? 2 : 1)];
  gemm.batch = batch_dims(c, rank);
  gemm.batch_a = batch_dims(a, rank);
  gemm.batch_b = batch_dims(b, rank);
  if (!gemm.trans_a && gemm.batch_a == gemm.batch && ir::num_elements(gemm.batch_b) == 1) {
    // One right operand for all rows: one tall product.
    gemm.m *= ir::num_elements(gemm.batch);
    gemm.batch = gemm.batch_a = gemm.batch_b = {};
  }
  auto made = make_gemm(spec.inputs[0].dtype, gemm);
  return made ? std::make_unique<MatMulKernel>(std::move(made)) : nullptr;
}

}  // namespace piper::ops
