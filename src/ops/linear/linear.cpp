// Linear: y[..., N] = x[..., K] W (+ bias), all leading dims one row dim. The backward pass is three ops, so that it
// splits into the part that gives dx and the part that gives the weights' gradients.

#include <algorithm>

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

bool trans_w(const Attrs& attrs) { return attrs.i("trans_w") != 0; }

Expected<std::vector<TensorType>> infer_linear(const InferInput& in) {
  const TensorType& x = in.type(0);
  const TensorType& w = in.type(1);
  if (x.shape.empty() || w.shape.size() != 2) {
    return support::user_error("Linear needs x of rank 1 or more and a matrix w, got " + to_string(x) + " and " +
                               to_string(w));
  }
  Dim k = w.shape[trans_w(in.attrs) ? 1 : 0];
  Dim n = w.shape[trans_w(in.attrs) ? 0 : 1];
  if (x.shape.back() != k || x.dtype != w.dtype) {
    return support::user_error("x " + to_string(x) + " does not fit the weight " + to_string(w));
  }
  if (in.present(2) && in.type(2).shape != Shape{n}) {
    return support::user_error("the bias " + to_string(in.type(2)) + " does not fit the weight " + to_string(w));
  }
  TensorType y = x;
  y.shape.back() = n;
  return std::vector<TensorType>{y};
}

void gradient_linear(GradientBuilder& g) {
  ValueId dy = g.grad(0);
  if (!dy.valid()) return;
  Attrs attrs{{"trans_w", g.op().attrs.i("trans_w")}};
  if (g.wants(0)) g.add_grad(0, g.emit("LinearGradInput", {dy, g.input(1)}, attrs));
  if (g.wants(1)) g.add_grad(1, g.emit("LinearGradWeight", {g.input(0), dy}, attrs));
  if (g.input(2).valid() && g.wants(2)) g.add_grad(2, g.emit("LinearGradBias", {dy}));
}

Expected<std::vector<TensorType>> infer_grad_input(const InferInput& in) {
  TensorType dx = in.type(0);
  const TensorType& w = in.type(1);
  bool t = trans_w(in.attrs);
  if (dx.shape.empty() || w.shape.size() != 2 || dx.shape.back() != w.shape[t ? 0 : 1]) {
    return support::user_error("dy " + to_string(dx) + " does not fit the weight " + to_string(w));
  }
  dx.shape.back() = w.shape[t ? 1 : 0];
  return std::vector<TensorType>{dx};
}

Expected<std::vector<TensorType>> infer_grad_weight(const InferInput& in) {
  const TensorType& x = in.type(0);
  const TensorType& dy = in.type(1);
  if (x.shape.empty() || dy.shape.empty() ||
      !std::equal(x.shape.begin(), x.shape.end() - 1, dy.shape.begin(), dy.shape.end() - 1)) {
    return support::user_error("x " + to_string(x) + " and dy " + to_string(dy) + " have different rows");
  }
  Dim k = x.shape.back(), n = dy.shape.back();
  return std::vector<TensorType>{{x.dtype, trans_w(in.attrs) ? Shape{n, k} : Shape{k, n}}};
}

Expected<std::vector<TensorType>> infer_grad_bias(const InferInput& in) {
  const TensorType& dy = in.type(0);
  if (dy.shape.empty()) return support::user_error("LinearGradBias needs a dy of rank 1 or more");
  return std::vector<TensorType>{{dy.dtype, {dy.shape.back()}}};
}

// dy or x flattened to rows, times the columns of both.
double flops_product(const std::vector<int64_t>& rows_of, int64_t columns) {
  return 2.0 * static_cast<double>(ir::num_elements(rows_of)) * static_cast<double>(columns);
}
double flops_linear(const CostInput& in) {
  return flops_product(in.inputs[0], in.outputs[0].back()) +
         (in.inputs.size() > 2 && !in.inputs[2].empty() ? flops_per_element(in) : 0);
}
double flops_grad_input(const CostInput& in) { return flops_product(in.inputs[0], in.outputs[0].back()); }
double flops_grad_weight(const CostInput& in) { return flops_product(in.inputs[0], in.inputs[1].back()); }
double flops_grad_bias(const CostInput& in) { return static_cast<double>(ir::num_elements(in.inputs[0])); }

// The contracted dim, or the features that come out, are the samples.
bool couples(const Attrs&, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return !inputs[0].shape.back().is_static() || ir::sample_dim(inputs[1].shape) >= 0;
}

// Gemm is Linear when it is one; otherwise it is written out.
Expected<void> import_gemm(ImportContext& c) {
  const Attrs& attrs = c.attrs();
  double alpha = attrs.f("alpha", 1), beta = attrs.f("beta", 1);
  int64_t trans_a = attrs.i("transA"), trans_b = attrs.i("transB");
  ValueId a = c.input(0), b = c.input(1);
  const Shape shape_a = c.type(a).shape, shape_b = c.type(b).shape;
  if (shape_a.size() != 2 || shape_b.size() != 2) {
    return support::user_error("Gemm multiplies matrices, got " + to_string(c.type(a)) + " and " +
                               to_string(c.type(b)));
  }
  bool has_c = c.has_input(2) && beta != 0;
  bool is_bias = has_c && c.type(c.input(2)).shape == Shape{shape_b[trans_b ? 0 : 1]};
  if (alpha == 1 && trans_a == 0 && (!has_c || (is_bias && beta == 1))) {
    c.set_output(0, c.emit("Linear", {a, b, has_c ? c.input(2) : ValueId()}, {{"trans_w", trans_b}}));
    return {};
  }
  ValueId y = c.emit("MatMul", {a, b}, {{"alpha", alpha}, {"trans_a", trans_a}, {"trans_b", trans_b}});
  if (has_c) {
    ValueId bias = c.input(2);
    if (beta != 1) bias = c.emit("Mul", {bias, c.constant(c.type(bias).dtype, beta)});
    y = c.emit("Add", {y, bias});
  }
  c.set_output(0, y);
  return {};
}

}  // namespace

extern const OpDef kLinearOp{
    .name = "Linear",
    .infer = infer_linear,
    .gradient = gradient_linear,
    .why_no_gradient = nullptr,
    .flops = flops_linear,
    .imports = {{"Gemm", "", kFirstOpset, kLastOpset, import_gemm}},
    .couples_samples = couples,
};
extern const OpDef kLinearGradInputOp{
    .name = "LinearGradInput",
    .infer = infer_grad_input,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_grad_input,
    .imports = {},
};
extern const OpDef kLinearGradWeightOp{
    .name = "LinearGradWeight",
    .infer = infer_grad_weight,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_grad_weight,
    .imports = {},
    .accumulates = 1,
};
extern const OpDef kLinearGradBiasOp{
    .name = "LinearGradBias",
    .infer = infer_grad_bias,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_grad_bias,
    .imports = {},
    .accumulates = 1,
};

}  // namespace piper::ops
