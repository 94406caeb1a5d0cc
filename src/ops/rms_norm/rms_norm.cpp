// RmsNorm over the trailing dims from `axis` (negative): x / sqrt(mean(x^2) + eps) * scale.

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

Shape lead(const Attrs& attrs, const Shape& x) { return Shape(x.begin(), x.end() + attrs.i("axis", -1)); }
Shape normed(const Attrs& attrs, const Shape& x) { return Shape(x.end() + attrs.i("axis", -1), x.end()); }

Expected<void> check(const Attrs& attrs, const TensorType& x, const TensorType& scale) {
  int64_t axis = attrs.i("axis", -1);
  if (axis >= 0 || -axis > static_cast<int64_t>(x.shape.size())) {
    return support::user_error("axis " + std::to_string(axis) + " is not a trailing dim of " + to_string(x));
  }
  if (scale.shape != normed(attrs, x.shape) || scale.dtype != x.dtype) {
    return support::user_error("the scale " + to_string(scale) + " does not fit the normalised dims of " +
                               to_string(x));
  }
  return {};
}

Expected<std::vector<TensorType>> infer_rms_norm(const InferInput& in) {
  const TensorType& x = in.type(0);
  if (auto ok = check(in.attrs, x, in.type(1)); !ok) return tl::make_unexpected(ok.error());
  return std::vector<TensorType>{x, {x.dtype, lead(in.attrs, x.shape)}};
}

Expected<std::vector<TensorType>> infer_rms_norm_grad(const InferInput& in) {
  const TensorType& x = in.type(0);
  if (auto ok = check(in.attrs, x, in.type(1)); !ok) return tl::make_unexpected(ok.error());
  if (in.type(2).shape != lead(in.attrs, x.shape) || in.type(3) != x) {
    return support::user_error("RmsNormGrad: the statistics or dy do not fit x " + to_string(x));
  }
  return std::vector<TensorType>{x, in.type(1)};
}

void gradient_rms_norm(GradientBuilder& g) {
  ValueId dy = g.grad(0);
  if (!dy.valid() || !(g.wants(0) || g.wants(1))) return;
  std::vector<ValueId> grads =
      g.emit_all("RmsNormGrad", {g.input(0), g.input(1), g.output(1), dy}, {{"axis", g.op().attrs.i("axis", -1)}});
  if (g.wants(0)) g.add_grad(0, grads[0]);
  if (g.wants(1)) g.add_grad(1, grads[1]);
}

double flops_forward(const CostInput& in) { return 4 * flops_per_element(in); }
double flops_backward(const CostInput& in) { return 10 * flops_per_element(in); }

bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return ir::sample_dim(normed(attrs, inputs[0].shape)) >= 0;
}

Expected<void> import_rms_norm(ImportContext& c) {
  ValueId x = c.input(0), scale = c.input(1);
  const Shape shape = c.type(x).shape;
  int64_t rank = static_cast<int64_t>(shape.size());
  int64_t axis = normalize_dim(c.attrs().i("axis", -1), shape.size());
  if (axis < 0) return support::user_error("axis is out of range for " + to_string(c.type(x)));
  for (size_t i = 1; i < c.num_outputs(); i++) {
    if (c.output_used(i)) return support::user_error("the statistics of an RMS normalization cannot be read");
  }
  Attrs attrs{{"axis", axis - rank}, {"eps", c.attrs().f("epsilon", 1e-5)}};
  Shape normal = normed(attrs, shape);
  if (c.type(scale).shape != normal) scale = c.emit("Expand", {scale}, {{"shape", normal}});
  c.set_output(0, c.emit_all("RmsNorm", {x, scale}, attrs)[0]);
  return {};
}

}  // namespace

extern const OpDef kRmsNormOp{
    .name = "RmsNorm",
    .infer = infer_rms_norm,
    .gradient = gradient_rms_norm,
    .why_no_gradient = nullptr,
    .flops = flops_forward,
    .imports = {{"RMSNormalization", "", 23, kLastOpset, import_rms_norm},
                // ONNX Runtime's own, in either domain.
                {"SimplifiedLayerNormalization", "", kFirstOpset, kLastOpset, import_rms_norm},
                {"SimplifiedLayerNormalization", "com.microsoft", 1, kLastOpset, import_rms_norm}},
    .couples_samples = couples,
};
extern const OpDef kRmsNormGradOp{
    .name = "RmsNormGrad",
    .infer = infer_rms_norm_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_backward,
    .imports = {},
    .accumulates = 0b10,
};

}  // namespace piper::ops
