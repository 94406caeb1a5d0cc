// Linear: products by a parameter, in the layout the parameter is stored in.

#include <algorithm>

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

// x as rows of `width` under the dims `lead`, which must be its first ones: dims behind may have been
// flattened into a row, as both directions of an LSTM are. Invalid when x has other rows.
ValueId rows_of(Rewriter& r, ValueId x, ir::Shape lead, ir::Dim width) {
  const ir::Shape from = r.shape(x);
  if (from.size() <= lead.size() || !std::equal(lead.begin(), lead.end(), from.begin()))
    return ValueId();
  const ir::Shape row(from.begin() + static_cast<std::ptrdiff_t>(lead.size()), from.end());
  if (row == ir::Shape{width}) return x;
  if (ir::sample_dim(row) >= 0 || ir::num_elements(row) != width) return ValueId();
  lead.push_back(width);
  return r.emit("Reshape", {x}, {{"shape", lead}});
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
  ir::Shape lead = r.shape(op.outputs[0]);
  if (lead.empty() || lead.back() != r.shape(op.inputs[0]).back()) return false;
  lead.pop_back();
  std::vector<ValueId> inputs = linear->inputs;
  inputs[0] = rows_of(r, before->inputs[0], lead, r.shape(linear->inputs[0]).back());
  if (!inputs[0].valid()) return false;
  return r.replace(op, "Linear", std::move(inputs), linear->attrs, linear);
}

}  // namespace piper::frontend
