// Softmax and LogSoftmax over one axis (negative values count from the end). Their gradients read the output only.

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

Expected<std::vector<TensorType>> infer_softmax(const InferInput& in) {
  const TensorType& x = in.type(0);
  if (normalize_dim(in.attrs.i("axis", -1), x.shape.size()) < 0) {
    return support::user_error("axis " + std::to_string(in.attrs.i("axis", -1)) + " is out of range for " +
                               to_string(x));
  }
  return std::vector<TensorType>{x};
}

Expected<std::vector<TensorType>> infer_softmax_grad(const InferInput& in) {
  if (in.type(0) != in.type(1)) {
    return support::user_error("y " + to_string(in.type(0)) + " and dy " + to_string(in.type(1)) + " differ");
  }
  return infer_softmax(in);
}

void emit_gradient(GradientBuilder& g, const char* kind) {
  ValueId dy = g.grad(0);
  if (!dy.valid() || !g.wants(0)) return;
  g.add_grad(0, g.emit(kind, {g.output(0), dy}, {{"axis", g.op().attrs.i("axis", -1)}}));
}
void gradient_softmax(GradientBuilder& g) { emit_gradient(g, "SoftmaxGrad"); }
void gradient_log_softmax(GradientBuilder& g) { emit_gradient(g, "LogSoftmaxGrad"); }

// An exponential counts as ten.
double flops_forward(const CostInput& in) { return 14 * flops_per_element(in); }
double flops_backward(const CostInput& in) { return 4 * flops_per_element(in); }
double flops_log_backward(const CostInput& in) { return 14 * flops_per_element(in); }

bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  const Shape& shape = inputs[0].shape;
  return normalize_dim(attrs.i("axis", -1), shape.size()) == ir::sample_dim(shape);
}

// Until opset 12 all dims from the axis on are normalised together.
Expected<void> import_flattened(ImportContext& c, const char* kind, size_t axis) {
  const Shape shape = c.type(c.input(0)).shape;
  auto last = count_elements(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()));
  if (!last) return tl::make_unexpected(last.error());
  Shape flat(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  flat.push_back(*last);
  ValueId y = c.emit(kind, {c.emit("Reshape", {c.input(0)}, {{"shape", flat}})}, {{"axis", int64_t{-1}}});
  c.set_output(0, c.emit("Reshape", {y}, {{"shape", shape}}));
  return {};
}

Expected<void> import_as(ImportContext& c, const char* kind) {
  ValueId x = c.input(0);
  size_t rank = c.type(x).shape.size();
  int64_t axis = normalize_dim(c.attrs().i("axis", c.opset() < 13 ? 1 : -1), rank);
  if (axis < 0) return support::user_error("axis is out of range for " + to_string(c.type(x)));
  if (c.opset() < 13 && axis + 1 < static_cast<int64_t>(rank)) return import_flattened(c, kind, static_cast<size_t>(axis));
  c.set_output(0, c.emit(kind, {x}, {{"axis", axis - static_cast<int64_t>(rank)}}));
  return {};
}
Expected<void> import_softmax(ImportContext& c) { return import_as(c, "Softmax"); }
Expected<void> import_log_softmax(ImportContext& c) { return import_as(c, "LogSoftmax"); }

}  // namespace

extern const OpDef kSoftmaxOp{
    .name = "Softmax",
    .infer = infer_softmax,
    .gradient = gradient_softmax,
    .why_no_gradient = nullptr,
    .flops = flops_forward,
    .imports = {{"Softmax", "", kFirstOpset, kLastOpset, import_softmax}},
    .couples_samples = couples,
};
extern const OpDef kLogSoftmaxOp{
    .name = "LogSoftmax",
    .infer = infer_softmax,
    .gradient = gradient_log_softmax,
    .why_no_gradient = nullptr,
    .flops = flops_forward,
    .imports = {{"LogSoftmax", "", kFirstOpset, kLastOpset, import_log_softmax}},
    .couples_samples = couples,
};
extern const OpDef kSoftmaxGradOp{
    .name = "SoftmaxGrad",
    .infer = infer_softmax_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_backward,
    .imports = {},
};
extern const OpDef kLogSoftmaxGradOp{
    .name = "LogSoftmaxGrad",
    .infer = infer_softmax_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_log_backward,
    .imports = {},
};

}  // namespace piper::ops
