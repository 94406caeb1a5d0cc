// The same elements under another shape: Reshape, Squeeze, Unsqueeze and Flatten of ONNX.

#include <algorithm>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  const Shape shape = in.attrs.shape("shape");
  auto from = count_elements(in.type(0).shape);
  if (!from) return tl::make_unexpected(from.error());
  auto to = count_elements(shape);
  if (!to) return tl::make_unexpected(to.error());
  if (*from != *to) {
    return user_error("it reshapes " + ir::to_string(in.type(0)) + " with " + ir::to_string(*from) + " elements to " +
                      ir::to_string(shape) + " with " + ir::to_string(*to));
  }
  return std::vector<TensorType>{{in.type(0).dtype, shape}};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  b.add_grad(0, b.emit("Reshape", {b.grad(0)}, {{"shape", b.type(b.input(0)).shape}}));
}

// A sample's elements stay together when as many elements stand before the sample dim as did.
bool couples(const Attrs&, const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) {
  const int from = ir::sample_dim(inputs[0].shape), to = ir::sample_dim(outputs[0].shape);
  if (from < 0 || to < 0) return from != to;
  return static_elements_before(inputs[0].shape, static_cast<size_t>(from)) !=
         static_elements_before(outputs[0].shape, static_cast<size_t>(to));
}

// What times `known` gives `total`; both may depend on the batch size.
std::optional<Dim> divide(Dim total, Dim known) {
  if (known == Dim(0)) return std::nullopt;
  if (known.is_static()) {
    if (total.constant % known.constant != 0 || total.batch % known.constant != 0) return std::nullopt;
    return Dim(total.constant / known.constant, total.batch / known.constant);
  }
  const int64_t factor = total.batch / known.batch;
  if (Dim(known.constant * factor, known.batch * factor) != total) return std::nullopt;
  return Dim(factor);
}

// The shape a Reshape asks for: -1 is what is left, 0 copies a dim (unless `allow_zero`).
Expected<Shape> resolve(const Shape& from, const std::vector<Dim>& target, bool allow_zero) {
  Shape shape = target;
  int inferred = -1;
  Shape others;
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape[i] == Dim(0) && !allow_zero) {
      if (i >= from.size()) return user_error("dim " + std::to_string(i) + " is to be copied, but the input is " + ir::to_string(from));
      shape[i] = from[i];
    }
    if (shape[i] == Dim(-1)) {
      if (inferred >= 0) return user_error("two dims of the target shape are -1");
      inferred = static_cast<int>(i);
    } else {
      others.push_back(shape[i]);
    }
  }
  auto total = count_elements(from);
  if (!total) return tl::make_unexpected(total.error());
  auto known = count_elements(others);
  if (!known) return tl::make_unexpected(known.error());
  if (inferred >= 0) {
    const std::optional<Dim> rest = divide(*total, *known);
    if (rest) {
      shape[static_cast<size_t>(inferred)] = *rest;
      return shape;
    }
  } else if (*known == *total) {
    return shape;
  }
  const std::string what = "it reshapes " + ir::to_string(from) + " to " + ir::to_string(target);
  if (!total->is_static() && known->is_static()) {
    return user_error(what + ", which does not follow the batch size",
                      "the exporter has written the batch size of its example into the model; export it with a dynamic "
                      "batch dim");
  }
  return user_error(what + ", which has another number of elements");
}

Expected<void> emit_reshape(ImportContext& context, const Shape& shape) {
  context.set_output(0, context.emit("Reshape", {context.input(0)}, {{"shape", shape}}));
  return {};
}

Expected<void> import_reshape(ImportContext& context) {
  const std::vector<Dim>* target = context.known_ints(1);
  if (!target) return user_error("its target shape is not known when the model is read");
  auto shape = resolve(context.type(context.input(0)).shape, *target, context.attrs().i("allowzero", 0) != 0);
  if (!shape) return tl::make_unexpected(shape.error());
  return emit_reshape(context, *shape);
}

Expected<void> import_squeeze(ImportContext& context) {
  const Shape from = context.type(context.input(0)).shape;
  bool given = false;
  auto axes = import_axes(context, 1, from.size(), &given);
  if (!axes) return tl::make_unexpected(axes.error());
  Shape shape;
  for (size_t i = 0; i < from.size(); i++) {
    const bool named = std::count(axes->begin(), axes->end(), static_cast<int64_t>(i)) > 0;
    if (named && from[i] != Dim(1)) {
      return user_error("it removes dim " + std::to_string(i) + " of " + ir::to_string(from) + ", which is not 1");
    }
    if (given ? !named : from[i] != Dim(1)) shape.push_back(from[i]);
  }
  return emit_reshape(context, shape);
}

Expected<void> import_unsqueeze(ImportContext& context) {
  const Shape from = context.type(context.input(0)).shape;
  size_t added = context.attrs().ints("axes").size();
  if (context.has_input(1)) {
    const std::vector<Dim>* known = context.known_ints(1);
    if (!known) return user_error("its axes are not known when the model is read");
    added = known->size();
  }
  // The axes count in the result.
  auto axes = import_axes(context, 1, from.size() + added);
  if (!axes) return tl::make_unexpected(axes.error());
  Shape shape = from;
  for (int64_t axis : *axes) shape.insert(shape.begin() + axis, Dim(1));
  return emit_reshape(context, shape);
}

// To two dims; `axis` may be the rank.
Expected<void> import_flatten(ImportContext& context) {
  const Shape from = context.type(context.input(0)).shape;
  const int64_t rank = static_cast<int64_t>(from.size());
  int64_t axis = context.attrs().i("axis", 1);
  if (axis < -rank || axis > rank) return user_error("axis " + std::to_string(axis) + " of " + ir::to_string(from));
  if (axis < 0) axis += rank;
  auto outer = count_elements(Shape(from.begin(), from.begin() + axis));
  if (!outer) return tl::make_unexpected(outer.error());
  auto inner = count_elements(Shape(from.begin() + axis, from.end()));
  if (!inner) return tl::make_unexpected(inner.error());
  return emit_reshape(context, {*outer, *inner});
}

ImportRule rule(const char* op_type, ImportFn import) { return {op_type, "", kFirstOpset, kLastOpset, import}; }

}  // namespace

const OpDef kReshapeOp = {"Reshape", infer, gradient, nullptr, flops_none,
                          {rule("Reshape", import_reshape), rule("Squeeze", import_squeeze),
                           rule("Unsqueeze", import_unsqueeze), rule("Flatten", import_flatten)},
                          0, couples};

}  // namespace piper::ops
