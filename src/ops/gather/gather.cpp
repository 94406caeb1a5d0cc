// Elements picked by index. Negative indices count from the end. An index out of range gives NaN (0 for integers) and
// takes no gradient: kernels cannot fail, and a NaN loss is noticed.

#include <algorithm>

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
// Place j of every tuple indices[..., k], counted from the front of a dim of that size.
ValueId tuple_place(ImportContext& c, ValueId indices, int64_t j, int64_t size) {
  const TensorType type = c.type(indices);
  const Shape places(type.shape.begin(), type.shape.end() - 1);
  std::vector<int64_t> starts(places.size(), 0);
  const std::vector<int64_t> steps(type.shape.size(), 1);
  starts.push_back(j);
  Shape one = places;
  one.push_back(1);
  ValueId place = c.emit("Slice", {indices}, {{"starts", starts}, {"steps", steps}, {"shape", one}});
  place = c.emit("Reshape", {place}, {{"shape", places}});
  const ValueId negative = c.emit("Less", {place, c.constant(type.dtype, 0)});
  return c.emit("Where", {negative, c.emit("Add", {place, c.constant(type.dtype, static_cast<double>(size))}), place});
}

// indices[batch..., ..., k] are places in the k dims behind the batch dims; these are taken as one.
Expected<void> import_gather_nd(ImportContext& c) {
  const ValueId data = c.input(0), indices = c.input(1);
  const Shape from = c.type(data).shape, by = c.type(indices).shape;
  const size_t batch = static_cast<size_t>(c.attrs().i("batch_dims"));
  const size_t k = by.empty() || !by.back().is_static() ? 0 : static_cast<size_t>(by.back().constant);
  if (k == 0 || batch + k > from.size() || batch >= by.size() ||
      !std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(batch), by.begin())) {
    return user_error("its indices " + ir::to_string(by) + " do not fit " + ir::to_string(from));
  }
  const Shape outer(by.begin(), by.begin() + static_cast<std::ptrdiff_t>(batch));
  Shape places(by.begin(), by.end() - 1), inner(from.begin() + static_cast<std::ptrdiff_t>(batch + k), from.end());
  if (batch == 0 && k == 1) {
    const ValueId place = c.emit("Reshape", {indices}, {{"shape", places}});
    c.set_output(0, c.emit("Gather", {data, place}, {{"axis", int64_t{0}}}));
    return {};
  }
  ValueId place;
  int64_t size = 1;
  for (size_t j = k; j-- > 0;) {
    const Dim dim = from[batch + j];
    if (!dim.is_static()) return user_error("it picks from dim " + std::to_string(batch + j) + ", which depends on the batch size");
    ValueId at = tuple_place(c, indices, static_cast<int64_t>(j), dim.constant);
    if (size != 1) at = c.emit("Mul", {at, c.constant(c.type(indices).dtype, static_cast<double>(size))});
    place = place.valid() ? c.emit("Add", {place, at}) : at;
    size *= dim.constant;
  }
  auto width = count_elements(inner), count = count_elements(Shape(places.begin() + static_cast<std::ptrdiff_t>(batch), places.end()));
  if (!width || !count) return tl::make_unexpected((width ? count : width).error());
  const auto with = [&](std::initializer_list<Dim> dims) {
    Shape shape = outer;
    shape.insert(shape.end(), dims);
    return shape;
  };
  // Of each batch its own rows: an element of every row is picked by the same place.
  const ValueId rows = c.emit("Reshape", {data}, {{"shape", with({size, *width})}});
  ValueId picked;
  if (batch == 0) {
    picked = c.emit("Gather", {rows, place}, {{"axis", int64_t{0}}});
  } else {
    const ValueId each = c.emit("Reshape", {place}, {{"shape", with({*count, 1})}});
    const ValueId all = c.emit("Expand", {each}, {{"shape", with({*count, *width})}});
    picked = c.emit("GatherElements", {rows, all}, {{"axis", static_cast<int64_t>(batch)}});
  }
  places.insert(places.end(), inner.begin(), inner.end());
  c.set_output(0, c.emit("Reshape", {picked}, {{"shape", places}}));
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
