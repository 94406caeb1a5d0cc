// LayerNorm over the trailing dims from `axis` (negative, so that it holds for any number of leading dims).

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

// Leading dims of x, and those that are normalised.
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

Expected<std::vector<TensorType>> infer_layer_norm(const InferInput& in) {
  const TensorType& x = in.type(0);
  if (auto ok = check(in.attrs, x, in.type(1)); !ok) return tl::make_unexpected(ok.error());
  if (in.present(2) && in.type(2) != in.type(1)) {
    return support::user_error("bias " + to_string(in.type(2)) + " and scale " + to_string(in.type(1)) + " differ");
  }
  TensorType row{x.dtype, lead(in.attrs, x.shape)};
  return std::vector<TensorType>{x, row, row};
}

Expected<std::vector<TensorType>> infer_layer_norm_grad(const InferInput& in) {
  const TensorType& x = in.type(0);
  if (auto ok = check(in.attrs, x, in.type(1)); !ok) return tl::make_unexpected(ok.error());
  TensorType row{x.dtype, lead(in.attrs, x.shape)};
  if (in.type(2) != row || in.type(3) != row || in.type(4) != x) {
    return support::user_error("LayerNormGrad: the statistics or dy do not fit x " + to_string(x));
  }
  return std::vector<TensorType>{x, in.type(1), in.type(1)};
}

void gradient_layer_norm(GradientBuilder& g) {
  ValueId dy = g.grad(0);
  bool bias = g.input(2).valid() && g.wants(2);
  if (!dy.valid() || !(g.wants(0) || g.wants(1) || bias)) return;
  std::vector<ValueId> grads = g.emit_all("LayerNormGrad", {g.input(0), g.input(1), g.output(1), g.output(2), dy},
                                          {{"axis", g.op().attrs.i("axis", -1)}});
  if (g.wants(0)) g.add_grad(0, grads[0]);
  if (g.wants(1)) g.add_grad(1, grads[1]);
  if (bias) g.add_grad(2, grads[2]);
}

double flops_forward(const CostInput& in) { return 8 * flops_per_element(in); }
double flops_backward(const CostInput& in) { return 14 * flops_per_element(in); }

bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return ir::sample_dim(normed(attrs, inputs[0].shape)) >= 0;
}

// The scale or bias as the shape rule wants it: ONNX lets them broadcast to the normalised dims.
ValueId fit(ImportContext& c, ValueId value, const Shape& shape) {
  return c.type(value).shape == shape ? value : c.emit("Expand", {value}, {{"shape", shape}});
}

Expected<void> import_layer_norm(ImportContext& c) {
  ValueId x = c.input(0);
  const Shape shape = c.type(x).shape;
  int64_t rank = static_cast<int64_t>(shape.size());
  int64_t axis = normalize_dim(c.attrs().i("axis", -1), shape.size());
  if (axis < 0) return support::user_error("axis is out of range for " + to_string(c.type(x)));
  for (size_t i = 1; i < c.num_outputs(); i++) {
    if (c.output_used(i)) return support::user_error("the statistics of a LayerNormalization cannot be read");
  }
  Attrs attrs{{"axis", axis - rank}, {"eps", c.attrs().f("epsilon", 1e-5)}};
  Shape normal = normed(attrs, shape);
  ValueId scale = fit(c, c.input(1), normal);
  ValueId bias = c.has_input(2) ? fit(c, c.input(2), normal) : ValueId();
  c.set_output(0, c.emit_all("LayerNorm", {x, scale, bias}, attrs)[0]);
  return {};
}

}  // namespace

extern const OpDef kLayerNormOp{
    .name = "LayerNorm",
    .infer = infer_layer_norm,
    .gradient = gradient_layer_norm,
    .why_no_gradient = nullptr,
    .flops = flops_forward,
    .imports = {{"LayerNormalization", "", 17, kLastOpset, import_layer_norm}},
    .couples_samples = couples,
};
extern const OpDef kLayerNormGradOp{
    .name = "LayerNormGrad",
    .infer = infer_layer_norm_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_backward,
    .imports = {},
    .accumulates = 0b110,
};

}  // namespace piper::ops
