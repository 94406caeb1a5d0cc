// SwiGlu: silu(gate) * up. The backward pass keeps gate and up only.

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

Expected<std::vector<TensorType>> infer_swiglu(const InferInput& in) {
  if (in.type(0) != in.type(1)) {
    return support::user_error("gate " + to_string(in.type(0)) + " and up " + to_string(in.type(1)) + " differ");
  }
  return std::vector<TensorType>{in.type(0)};
}

Expected<std::vector<TensorType>> infer_swiglu_grad(const InferInput& in) {
  if (in.type(0) != in.type(1) || in.type(0) != in.type(2)) {
    return support::user_error("gate, up and dy have different types");
  }
  return std::vector<TensorType>{in.type(0), in.type(0)};
}

void gradient_swiglu(GradientBuilder& g) {
  ValueId dy = g.grad(0);
  if (!dy.valid() || !(g.wants(0) || g.wants(1))) return;
  std::vector<ValueId> grads = g.emit_all("SwiGluGrad", {g.input(0), g.input(1), dy});
  if (g.wants(0)) g.add_grad(0, grads[0]);
  if (g.wants(1)) g.add_grad(1, grads[1]);
}

double flops_forward(const CostInput& in) { return 14 * flops_per_element(in); }
double flops_backward(const CostInput& in) { return 20 * flops_per_element(in); }

}  // namespace

extern const OpDef kSwiGluOp{
    .name = "SwiGlu",
    .infer = infer_swiglu,
    .gradient = gradient_swiglu,
    .why_no_gradient = nullptr,
    .flops = flops_forward,
    .imports = {},
};
extern const OpDef kSwiGluGradOp{
    .name = "SwiGluGrad",
    .infer = infer_swiglu_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_backward,
    .imports = {},
};

}  // namespace piper::ops
