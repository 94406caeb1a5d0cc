// One of two values by a condition. Gradients select too: a product with the condition would turn infinities in the
// branch that was not taken into NaN.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  if (in.type(0).dtype != DType::kBool) return user_error("its condition is " + ir::to_string(in.type(0)) + ", not bool");
  if (in.type(1).dtype != in.type(2).dtype) {
    return user_error("its branches have types " + ir::to_string(in.type(1)) + " and " + ir::to_string(in.type(2)));
  }
  auto branches = broadcast(in.type(1).shape, in.type(2).shape);
  if (!branches) return tl::make_unexpected(branches.error());
  auto shape = broadcast(in.type(0).shape, *branches);
  if (!shape) return tl::make_unexpected(shape.error());
  return std::vector<TensorType>{{in.type(1).dtype, *shape}};
}

Expected<std::vector<TensorType>> infer_grad(const InferInput& in) {
  auto shape = broadcast(in.type(0).shape, in.type(1).shape);
  if (!shape || *shape != in.type(1).shape) return user_error("its condition does not broadcast to the gradient");
  return std::vector<TensorType>{in.type(1), in.type(1)};
}

void gradient(GradientBuilder& b) {
  const ValueId dy = b.grad(0), condition = b.input(0);
  if (!dy.valid()) return;
  if (b.wants(1) && b.wants(2)) {
    const std::vector<ValueId> both = b.emit_all("WhereGrad", {condition, dy});
    b.add_grad(1, b.sum_to(both[0], b.input(1)));
    b.add_grad(2, b.sum_to(both[1], b.input(2)));
  } else if (b.wants(1) || b.wants(2)) {
    const ValueId zero = scalar(b, b.type(dy).dtype, 0);
    const size_t i = b.wants(1) ? 1 : 2;
    const ValueId taken = i == 1 ? b.emit("Where", {condition, dy, zero}) : b.emit("Where", {condition, zero, dy});
    b.add_grad(i, b.sum_to(taken, b.input(i)));
  }
}

}  // namespace

const OpDef kWhereOp = {"Where", infer, gradient, nullptr, flops_per_element, {same_name_rule("Where")}};
const OpDef kWhereGradOp = {"WhereGrad", infer_grad, nullptr, kBackwardOnly, flops_per_element, {}};

}  // namespace piper::ops
