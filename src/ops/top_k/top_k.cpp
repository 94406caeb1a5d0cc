// The largest or smallest elements along a dim, and where they are. Of equal ones the first comes first.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<size_t> axis_of(const InferInput& in) {
  const int64_t axis = in.attrs.i("axis");
  if (normalize_dim(axis, in.type(0).shape.size()) == axis) return static_cast<size_t>(axis);
  return user_error("there is no dim " + std::to_string(axis) + " in " + ir::to_string(in.type(0)));
}

Expected<std::vector<TensorType>> infer_top_k(const InferInput& in) {
  auto axis = axis_of(in);
  if (!axis) return tl::make_unexpected(axis.error());
  Shape shape = in.type(0).shape;
  const int64_t k = in.attrs.i("k");
  if (k < 0 || (shape[*axis].is_static() && k > shape[*axis].constant)) {
    return user_error("it takes " + std::to_string(k) + " elements along dim " + std::to_string(*axis) + " of " + ir::to_string(in.type(0)));
  }
  shape[*axis] = k;
  return std::vector<TensorType>{{in.type(0).dtype, shape}, {DType::kI64, shape}};
}

Expected<std::vector<TensorType>> infer_arg(const InferInput& in) {
  auto axis = axis_of(in);
  if (!axis) return tl::make_unexpected(axis.error());
  Shape shape = in.type(0).shape;
  if (in.attrs.i("keepdims", 1)) shape[*axis] = 1;
  else shape.erase(shape.begin() + static_cast<int64_t>(*axis));
  return std::vector<TensorType>{{DType::kI64, shape}};
}

// Only what was taken gets a gradient, at the place it came from.
void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  b.add_grad(0, b.emit("GatherElementsGrad", {b.grad(0), b.output(1)},
                       {{"axis", b.op().attrs.i("axis")}, {"shape", b.type(b.input(0)).shape}}));
}

bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return !inputs[0].shape[static_cast<size_t>(attrs.i("axis"))].is_static();
}

Expected<void> import_top_k(ImportContext& context) {
  const ValueId x = context.input(0);
  auto axis = import_axis(context, -1, context.type(x).shape.size());
  if (!axis) return tl::make_unexpected(axis.error());
  auto k = static_ints(context, 1, "k");
  if (!k) return tl::make_unexpected(k.error());
  if (k->size() != 1) return user_error("its k has " + std::to_string(k->size()) + " values");
  const std::vector<ValueId> both = context.emit_all("TopK", {x}, {{"axis", *axis}, {"k", k->front()}, {"largest", context.attrs().i("largest", 1)}});
  context.set_output(0, both[0]);
  if (context.num_outputs() > 1) context.set_output(1, both[1]);
  return {};
}

Expected<void> import_arg(ImportContext& context, const char* kind) {
  const ValueId x = context.input(0);
  auto axis = import_axis(context, 0, context.type(x).shape.size());
  if (!axis) return tl::make_unexpected(axis.error());
  const Attrs& attrs = context.attrs();
  context.set_output(0, context.emit(kind, {x}, {{"axis", *axis}, {"keepdims", attrs.i("keepdims", 1)}, {"last", attrs.i("select_last_index", 0)}}));
  return {};
}
Expected<void> import_arg_max(ImportContext& c) { return import_arg(c, "ArgMax"); }
Expected<void> import_arg_min(ImportContext& c) { return import_arg(c, "ArgMin"); }

}  // namespace

const OpDef kArgMaxOp = {"ArgMax", infer_arg, nullptr, kIntegerResult, flops_none,
                         {{"ArgMax", "", kFirstOpset, kLastOpset, import_arg_max}}, 0, couples};
const OpDef kArgMinOp = {"ArgMin", infer_arg, nullptr, kIntegerResult, flops_none,
                         {{"ArgMin", "", kFirstOpset, kLastOpset, import_arg_min}}, 0, couples};
const OpDef kTopKOp = {"TopK", infer_top_k, gradient, nullptr, flops_none,
                       {{"TopK", "", kFirstOpset, kLastOpset, import_top_k}}, 0, couples};

}  // namespace piper::ops
