// Linear: products by a parameter, in the layout the parameter is stored in.

#include "frontend/onnx/canonical/canonical.h"

namespace piper::frontend {

using ir::Op;
using ir::ValueId;

namespace {

// A matrix that is a parameter, and whether it is read transposed.
struct Weight {
  ValueId parameter;
  bool transposed = false;
};

std::optional<Weight> weight_of(const Rewriter& r, ValueId value) {
  if (r.is_parameter(value) && r.shape(value).size() == 2) return Weight{value, false};
  const Op* transpose = r.producer(value, "Transpose");
  if (transpose == nullptr || !r.is_parameter(transpose->inputs[0]) || r.shape(value).size() != 2)
    return std::nullopt;
  return Weight{transpose->inputs[0], true};
}

bool has_bias(const Op& linear) { return linear.inputs.size() > 2 && linear.inputs[2].valid(); }

}  // namespace

bool match_linear(Rewriter& r, const Op& op) {
  if (op.kind == "Linear") {
    auto weight = weight_of(r, op.inputs[1]);
    if (!weight || !weight->transposed) return false;
    std::vector<ValueId> inputs = op.inputs;
    inputs[1] = weight->parameter;
    return r.replace(op, "Linear", std::move(inputs),
                     {{"trans_w", int64_t{op.attrs.i("trans_w") == 0}}});
  }
  if (op.kind != "MatMul" || op.attrs.i("trans_a") != 0 || op.attrs.f("alpha", 1) != 1)
    return false;
  auto weight = weight_of(r, op.inputs[1]);
  if (!weight) return false;
  const bool trans_w = weight->transposed != (op.attrs.i("trans_b") != 0);
  return r.replace(op, "Linear", {op.inputs[0], weight->parameter, ValueId()},
                   {{"trans_w", int64_t{trans_w}}});
}

bool match_linear_bias(Rewriter& r, const Op& op) {
  if (op.kind != "Add") return false;
  for (size_t i = 0; i < 2; i++) {
    const Op* linear = r.producer(op.inputs[i], "Linear");
    if (linear == nullptr || has_bias(*linear) || !r.single_use(op.inputs[i])) continue;
    const ir::TensorType& bias = r.type(op.inputs[1 - i]);
    const ir::TensorType& y = r.type(op.inputs[i]);
    if (bias.dtype != y.dtype || bias.shape != ir::Shape{y.shape.back()}) continue;
    return r.replace(op, "Linear", {linear->inputs[0], linear->inputs[1], op.inputs[1 - i]},
                     linear->attrs, linear);
  }
  return false;
}

bool match_linear_reshape(Rewriter& r, const Op& op) {
  if (op.kind != "Reshape") return false;
  const Op* linear = r.producer(op.inputs[0], "Linear");
  if (linear == nullptr || !r.single_use(op.inputs[0])) return false;
  const Op* before = r.producer(linear->inputs[0], "Reshape");
  if (before == nullptr) return false;
  const ValueId x = before->inputs[0];
  ir::Shape expected = r.shape(x);
  if (expected.empty() || expected.back() != r.shape(linear->inputs[0]).back()) return false;
  expected.back() = r.shape(op.inputs[0]).back();
  if (expected != r.shape(op.outputs[0])) return false;
  std::vector<ValueId> inputs = linear->inputs;
  inputs[0] = x;
  return r.replace(op, "Linear", std::move(inputs), linear->attrs, linear);
}

}  // namespace piper::frontend
