// Linear and its gradients on the CPU: one matrix product over all rows each.

#include "ops/cpu/column_sums.h"
#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

// in[a], in[b] and, when there, in[2] as bias -> out[0].
class LinearKernel final : public Kernel {
 public:
  LinearKernel(std::unique_ptr<Gemm> gemm, int a, int b, bool bias)
      : gemm_(std::move(gemm)), a_(a), b_(b), bias_(bias) {}
  size_t scratch_bytes() const override { return gemm_->scratch_bytes(); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    gemm_->run(in[a_], in[b_], bias_ ? in[2] : nullptr, out[0], context.scratch);
  }

 private:
  std::unique_ptr<Gemm> gemm_;
  int a_, b_;
  bool bias_;
};

std::unique_ptr<Kernel> make(const KernelSpec& spec, const GemmSpec& gemm, int a, int b) {
  auto made = make_gemm(spec.inputs[0].dtype, gemm);
  return made ? std::make_unique<LinearKernel>(std::move(made), a, b, gemm.bias) : nullptr;
}

int64_t rows_of(const std::vector<int64_t>& shape) {
  return ir::num_elements(std::vector<int64_t>(shape.begin(), shape.end() - 1));
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_Linear(const KernelSpec& spec) {
  GemmSpec gemm;
  gemm.m = rows_of(spec.inputs[0].shape);
  gemm.k = spec.inputs[0].shape.back();
  gemm.n = spec.outputs[0].shape.back();
  gemm.trans_b = spec.attrs.i("trans_w") != 0;
  gemm.bias = spec.inputs.size() > 2 && spec.inputs[2].present;
  return make(spec, gemm, 0, 1);
}

std::unique_ptr<Kernel> make_cpu_LinearGradInput(const KernelSpec& spec) {
  GemmSpec gemm;
  gemm.m = rows_of(spec.inputs[0].shape);
  gemm.k = spec.inputs[0].shape.back();
  gemm.n = spec.outputs[0].shape.back();
  gemm.trans_b = spec.attrs.i("trans_w") == 0;
  return make(spec, gemm, 0, 1);
}

std::unique_ptr<Kernel> make_cpu_LinearGradWeight(const KernelSpec& spec) {
  bool trans_w = spec.attrs.i("trans_w") != 0;
  GemmSpec gemm;
  gemm.m = spec.outputs[0].shape[0];
  gemm.n = spec.outputs[0].shape[1];
  gemm.k = rows_of(spec.inputs[0].shape);
  gemm.trans_a = true;
  gemm.accumulate = spec.attrs.i("accumulate") & 1;
  return trans_w ? make(spec, gemm, 1, 0) : make(spec, gemm, 0, 1);
}

std::unique_ptr<Kernel> make_cpu_LinearGradBias(const KernelSpec& spec) {
  return make_column_sums(spec.inputs[0].dtype, rows_of(spec.inputs[0].shape), spec.inputs[0].shape.back(),
                          spec.attrs.i("accumulate") & 1);
}

}  // namespace piper::ops
