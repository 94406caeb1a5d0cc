// Tensors one after the other along a dim.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  TensorType result = in.type(0);
  const int64_t axis = in.attrs.i("axis");
  if (normalize_dim(axis, result.shape.size()) != axis) {
    return user_error("there is no dim " + std::to_string(axis) + " in " + ir::to_string(result));
  }
  const size_t along = static_cast<size_t>(axis);
  for (size_t i = 1; i < in.inputs.size(); i++) {
    Shape shape = in.type(i).shape;
    const bool fits = shape.size() == result.shape.size() && in.type(i).dtype == result.dtype;
    if (fits && !(shape[along].is_static() && result.shape[along].is_static())) {
      return user_error("it joins " + ir::to_string(result) + " and " + ir::to_string(in.type(i)) +
                        " along the dim that carries the samples");
    }
    const Dim sum = fits ? shape[along] + result.shape[along] : Dim();
    if (fits) shape[along] = result.shape[along];
    if (!fits || shape != result.shape) {
      return user_error("it joins " + ir::to_string(in.type(0)) + " and " + ir::to_string(in.type(i)) + " along dim " +
                        std::to_string(axis));
    }
    result.shape[along] = sum;
  }
  return std::vector<TensorType>{result};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid()) return;
  const size_t axis = static_cast<size_t>(b.op().attrs.i("axis"));
  int64_t start = 0;
  for (size_t i = 0; i < b.op().inputs.size(); i++) {
    const Shape shape = b.type(b.input(i)).shape;
    if (b.op().inputs.size() == 1) {
      if (b.wants(i)) b.add_grad(i, b.grad(0));
      return;
    }
    std::vector<int64_t> starts(shape.size(), 0), steps(shape.size(), 1);
    starts[axis] = start;
    if (b.wants(i)) b.add_grad(i, b.emit("Slice", {b.grad(0)}, {{"starts", starts}, {"steps", steps}, {"shape", shape}}));
    start += shape[axis].constant;
  }
}

Expected<void> import(ImportContext& context) {
  if (context.num_inputs() == 0) return user_error("it has no inputs");
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < context.num_inputs(); i++) inputs.push_back(context.input(i));
  if (!context.attrs().has("axis")) return user_error("it has no axis");
  auto axis = import_axis(context, 0, context.type(inputs[0]).shape.size());
  if (!axis) return tl::make_unexpected(axis.error());
  context.set_output(0, context.emit("Concat", std::move(inputs), {{"axis", *axis}}));
  return {};
}

}  // namespace

const OpDef kConcatOp = {"Concat", infer, gradient, nullptr, flops_none,
                         {{"Concat", "", kFirstOpset, kLastOpset, import}}};

}  // namespace piper::ops
