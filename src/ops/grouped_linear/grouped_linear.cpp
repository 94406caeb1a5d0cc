// GroupedLinear: each row times the weight of its expert. How many rows an expert has is known at run time only; the
// rows after those belong to nobody. Several blocks, one after another, are what several senders contributed, each
// sorted by expert. The gradient of the rows is the same operation with the weights the other way round.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

bool trans_w(const Attrs& attrs) { return attrs.i("trans_w") != 0; }

Expected<int64_t> experts_of(const TensorType& counts) {
  if (counts.dtype != DType::kI64 || counts.shape.empty() || counts.shape.size() > 2 ||
      !counts.shape.back().is_static()) {
    return user_error("its counts are " + to_string(counts) + ", not i64[experts] or i64[blocks, experts]");
  }
  return counts.shape.back().constant;
}

Expected<std::vector<TensorType>> infer_grouped(const InferInput& in) {
  const TensorType &x = in.type(0), &w = in.type(1);
  auto experts = experts_of(in.type(2));
  if (!experts) return tl::make_unexpected(experts.error());
  if (x.shape.size() != 2 || w.shape.size() != 3) {
    return user_error("GroupedLinear needs rows of rank 2 and weights of rank 3, got " + to_string(x) + " and " +
                      to_string(w));
  }
  const Dim k = w.shape[trans_w(in.attrs) ? 2 : 1], m = w.shape[trans_w(in.attrs) ? 1 : 2];
  if (x.shape[1] != k || x.dtype != w.dtype || w.shape[0] != Dim(*experts)) {
    return user_error("rows " + to_string(x) + " of " + std::to_string(*experts) + " experts do not fit the weights " +
                      to_string(w));
  }
  if (in.present(3) && (in.type(3).shape != Shape{w.shape[0], m} || in.type(3).dtype != x.dtype)) {
    return user_error("the bias " + to_string(in.type(3)) + " does not fit the weights " + to_string(w));
  }
  return std::vector<TensorType>{{x.dtype, {x.shape[0], m}}};
}

void gradient(GradientBuilder& g) {
  const ValueId dy = g.grad(0), counts = g.input(2);
  if (!dy.valid()) return;
  const int64_t t = g.op().attrs.i("trans_w");
  if (g.wants(0)) g.add_grad(0, g.emit("GroupedLinear", {dy, g.input(1), counts}, {{"trans_w", int64_t{t == 0}}}));
  if (g.wants(1)) g.add_grad(1, g.emit("GroupedLinearGradWeight", {g.input(0), dy, counts}, {{"trans_w", t}}));
  if (g.input(3).valid() && g.wants(3)) g.add_grad(3, g.emit("GroupedLinearGradBias", {dy, counts}));
}

Expected<std::vector<TensorType>> infer_grad_weight(const InferInput& in) {
  const TensorType &x = in.type(0), &dy = in.type(1);
  auto experts = experts_of(in.type(2));
  if (!experts) return tl::make_unexpected(experts.error());
  if (x.shape.size() != 2 || dy.shape.size() != 2 || x.shape[0] != dy.shape[0]) {
    return user_error("rows " + to_string(x) + " and dy " + to_string(dy) + " do not fit");
  }
  const Dim k = x.shape[1], m = dy.shape[1];
  return std::vector<TensorType>{{x.dtype, trans_w(in.attrs) ? Shape{*experts, m, k} : Shape{*experts, k, m}}};
}

Expected<std::vector<TensorType>> infer_grad_bias(const InferInput& in) {
  auto experts = experts_of(in.type(1));
  if (!experts) return tl::make_unexpected(experts.error());
  if (in.type(0).shape.size() != 2)
    return user_error("GroupedLinearGradBias needs a dy of rank 2, got " + to_string(in.type(0)));
  return std::vector<TensorType>{{in.type(0).dtype, {*experts, in.type(0).shape[1]}}};
}

// As if every row belonged to an expert.
double flops_product(const std::vector<int64_t>& rows, int64_t columns) {
  return 2.0 * static_cast<double>(ir::num_elements(rows)) * static_cast<double>(columns);
}
double flops_grouped(const CostInput& in) { return flops_product(in.inputs[0], in.outputs[0].back()); }
double flops_grad_weight(const CostInput& in) { return flops_product(in.inputs[0], in.inputs[1].back()); }
double flops_grad_bias(const CostInput& in) { return static_cast<double>(ir::num_elements(in.inputs[0])); }

}  // namespace

const OpDef kGroupedLinearOp = {"GroupedLinear", infer_grouped, gradient, nullptr, flops_grouped, {}};
const OpDef kGroupedLinearGradBiasOp = {
    "GroupedLinearGradBias", infer_grad_bias, nullptr, kBackwardOnly, flops_grad_bias, {}, 1};
const OpDef kGroupedLinearGradWeightOp = {
    "GroupedLinearGradWeight", infer_grad_weight, nullptr, kBackwardOnly, flops_grad_weight, {}, 1};

}  // namespace piper::ops
