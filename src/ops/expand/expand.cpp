// A tensor repeated along dims of 1; ONNX's Tile is this between two reshapes.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  const Shape shape = in.attrs.shape("shape");
  auto both = broadcast(in.type(0).shape, shape);
  if (!both || *both != shape) {
    return user_error("it repeats " + ir::to_string(in.type(0)) + " to " + ir::to_string(shape));
  }
  return std::vector<TensorType>{{in.type(0).dtype, shape}};
}

void gradient(GradientBuilder& b) {
  if (b.grad(0).valid() && b.wants(0)) b.add_grad(0, b.sum_to(b.grad(0), b.input(0)));
}

// A dim of 1 in the target keeps the input's.
Expected<void> import_expand(ImportContext& context) {
  const std::vector<Dim>* target = context.known_ints(1);
  if (!target) return user_error("its target shape is not known when the model is read");
  const ValueId x = context.input(0);
  auto shape = broadcast(context.type(x).shape, *target);
  if (!shape) return tl::make_unexpected(shape.error());
  context.set_output(0, context.emit("Expand", {x}, {{"shape", *shape}}));
  return {};
}

Expected<void> import_tile(ImportContext& context) {
  const std::vector<Dim>* repeats = context.known_ints(1);
  if (!repeats) return user_error("its repeats are not known when the model is read");
  const Shape from = context.type(context.input(0)).shape;
  if (repeats->size() != from.size()) return user_error("it has " + std::to_string(repeats->size()) + " repeats for " + ir::to_string(from));
  Shape apart, repeated, result;
  for (size_t i = 0; i < from.size(); i++) {
    const Dim times = (*repeats)[i];
    if (times != Dim(1)) {
      apart.push_back(1);
      repeated.push_back(times);
    }
    apart.push_back(from[i]);
    repeated.push_back(from[i]);
    auto size = multiply(from[i], times);
    if (!size) return tl::make_unexpected(size.error());
    result.push_back(*size);
  }
  ValueId y = context.emit("Reshape", {context.input(0)}, {{"shape", apart}});
  y = context.emit("Expand", {y}, {{"shape", repeated}});
  context.set_output(0, context.emit("Reshape", {y}, {{"shape", result}}));
  return {};
}

}  // namespace

const OpDef kExpandOp = {"Expand", infer, gradient, nullptr, flops_none,
                         {{"Expand", "", kFirstOpset, kLastOpset, import_expand},
                          {"Tile", "", kFirstOpset, kLastOpset, import_tile}}};

}  // namespace piper::ops
