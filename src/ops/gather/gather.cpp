// Elements picked by index. Negative indices count from the end. An index out of range gives NaN (0 for integers) and
// takes no gradient: kernels cannot fail, and a NaN loss is noticed.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<size_t> axis_of(const InferInput& in) {
  const int64_t axis = in.attrs.i("axis");
  if (normalize_dim(axis, in.type(0).shape.size()) != axis) {
    return user_error("there is no dim " + std::to_string(axis) + " in " + ir::to_string(in.type(0)));
  }
  if (in.type(1).dtype != DType::kI64 && in.type(1).dtype != DType::kI32) {
    return user_error("its indices are " + ir::to_string(in.type(1)));
  }
  return static_cast<size_t>(axis);
}

Expected<std::vector<TensorType>> infer_gather(const InferInput& in) {
  auto axis = axis_of(in);
  if (!axis) return tl::make_unexpected(axis.error());
  const Shape &data = in.type(0).shape, &indices = in.type(1).shape;
  Shape shape(data.begin(), data.begin() + static_cast<int64_t>(*axis));
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), data.begin() + static_cast<int64_t>(*axis) + 1, data.end());
  if (auto count = count_elements(shape); !count) {
    return user_error("it picks from " + ir::to_string(in.type(0)) + " with indices " + ir::to_string(in.type(1)) +
                      ": both depend on the batch size");
  }
  return std::vector<TensorType>{{in.type(0).dtype, shape}};
}

Expected<std::vector<TensorType>> infer_elements(const InferInput& in) {
  auto axis = axis_of(in);
  if (!axis) return tl::make_unexpected(axis.error());
  const Shape &data = in.type(0).shape, &indices = in.type(1).shape;
  bool fits = data.size() == indices.size();
  for (size_t i = 0; fits && i < data.size(); i++) {
    fits = i == *axis || indices[i] == data[i] || (indices[i].is_static() && data[i].is_static() && indices[i].constant <= data[i].constant);
  }
  if (!fits) return user_error("its indices " + ir::to_string(indices) + " do not fit into " + ir::to_string(data));
  return std::vector<TensorType>{{in.type(0).dtype, indices}};
}

Expected<std::vector<TensorType>> infer_grad(const InferInput& in) {
  return std::vector<TensorType>{{in.type(0).dtype, in.attrs.shape("shape")}};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  Attrs attrs = b.op().attrs;
  attrs.set("shape", b.type(b.input(0)).shape);
  b.add_grad(0, b.emit(b.op().kind + "Grad", {b.grad(0), b.input(1)}, attrs));
}

// Picking among the samples mixes them; so does indexing samples with a table of other samples' places.
bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return !inputs[0].shape[static_cast<size_t>(attrs.i("axis"))].is_static();
}

Expected<void> import_as(ImportContext& context, const char* kind) {
  const ValueId data = context.input(0);
  auto axis = import_axis(context, 0, context.type(data).shape.size());
  if (!axis) return tl::make_unexpected(axis.error());
  context.set_output(0, context.emit(kind, {data, context.input(1)}, {{"axis", *axis}}));
  return {};
}
// What tensor[index] of PyTorch becomes: places along the first dim alone.
Expected<void> import_gather_nd(ImportContext& context) {
  const ValueId data = context.input(0), indices = context.input(1);
  Shape places = context.type(indices).shape;
  if (places.empty() || places.back() != Dim(1) || context.attrs().i("batch_dims") != 0) {
    return user_error("its indices " + ir::to_string(context.type(indices)) + " are not places along the first dim alone");
  }
  places.pop_back();
  const ValueId rows = context.emit("Reshape", {indices}, {{"shape", places}});
  context.set_output(0, context.emit("Gather", {data, rows}, {{"axis", int64_t{0}}}));
  return {};
}
Expected<void> import_gather(ImportContext& c) { return import_as(c, "Gather"); }
Expected<void> import_elements(ImportContext& c) { return import_as(c, "GatherElements"); }

}  // namespace

const OpDef kGatherOp = {"Gather", infer_gather, gradient, nullptr, flops_none,
                         {{"Gather", "", kFirstOpset, kLastOpset, import_gather},
                          {"GatherND", "", 11, kLastOpset, import_gather_nd}}, 0, couples};
const OpDef kGatherElementsOp = {"GatherElements", infer_elements, gradient, nullptr, flops_none,
                                 {{"GatherElements", "", kFirstOpset, kLastOpset, import_elements}}, 0, couples};
const OpDef kGatherElementsGradOp = {"GatherElementsGrad", infer_grad, nullptr, kBackwardOnly, flops_none, {}, 1};
const OpDef kGatherGradOp = {"GatherGrad", infer_grad, nullptr, kBackwardOnly, flops_none, {}, 1};

}  // namespace piper::ops
