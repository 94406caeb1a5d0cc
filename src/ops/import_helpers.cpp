#include "ops/import_helpers.h"

#include <algorithm>

namespace piper::ops {

using support::user_error;

Expected<void> import_same(ImportContext& context) {
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < context.num_inputs(); i++) inputs.push_back(context.has_input(i) ? context.input(i) : ValueId());
  context.set_output(0, context.emit(context.op_type(), std::move(inputs)));
  return {};
}

ImportRule same_name_rule(const char* op_type) { return {op_type, "", kFirstOpset, kLastOpset, import_same}; }

Expected<std::vector<int64_t>> static_ints(ImportContext& context, size_t i, const std::string& what) {
  const std::vector<Dim>* known = context.known_ints(i);
  if (!known) return user_error("its " + what + " are not known when the model is read");
  std::vector<int64_t> values;
  for (Dim dim : *known) {
    if (!dim.is_static()) return user_error("its " + what + " depend on the batch size (" + ir::to_string(dim) + ")");
    values.push_back(dim.constant);
  }
  return values;
}

Expected<std::vector<int64_t>> import_axes(ImportContext& context, size_t i, size_t rank, bool* given) {
  std::vector<int64_t> axes = context.attrs().ints("axes");
  bool present = context.attrs().has("axes");
  if (context.has_input(i)) {
    auto known = static_ints(context, i, "axes");
    if (!known) return tl::make_unexpected(known.error());
    axes = *known;
    present = true;
  }
  if (given) *given = present;
  for (int64_t& axis : axes) {
    const int64_t normal = normalize_dim(axis, rank);
    if (normal < 0) return user_error("axis " + std::to_string(axis) + " of a tensor with " + std::to_string(rank) + " dims");
    axis = normal;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return user_error("its axes name a dim twice");
  return axes;
}

Expected<int64_t> import_axis(ImportContext& context, int64_t otherwise, size_t rank) {
  const int64_t axis = context.attrs().i("axis", otherwise);
  const int64_t normal = normalize_dim(axis, rank);
  if (normal < 0) return user_error("axis " + std::to_string(axis) + " of a tensor with " + std::to_string(rank) + " dims");
  return normal;
}

Expected<Dim> count_elements(const Shape& shape) {
  const auto batched = std::count_if(shape.begin(), shape.end(), [](Dim dim) { return !dim.is_static(); });
  if (batched > 1) return user_error("two dims of " + ir::to_string(shape) + " depend on the batch size");
  return ir::num_elements(shape);
}

Expected<Dim> multiply(Dim a, Dim b) { return count_elements({a, b}); }

int64_t static_elements_before(const Shape& shape, size_t i) {
  int64_t count = 1;
  for (size_t k = 0; k < i; k++) count *= shape[k].is_static() ? shape[k].constant : 0;
  return count;
}

Expected<std::vector<TensorType>> infer_same_type(const InferInput& in) { return std::vector<TensorType>{in.type(0)}; }

ValueId filled(GradientBuilder& builder, const TensorType& type, double value) {
  return builder.emit("Fill", {}, {{"shape", type.shape}, {"value", value}, {"dtype", std::string(ir::dtype_name(type.dtype))}});
}

ValueId scalar(GradientBuilder& builder, DType dtype, double value) { return filled(builder, {dtype, {}}, value); }

ValueId scaled(GradientBuilder& builder, ValueId value, double factor) {
  return builder.emit("Mul", {value, scalar(builder, builder.type(value).dtype, factor)});
}

}  // namespace piper::ops
