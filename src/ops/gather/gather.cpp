// Elements picked by index, and put where an index says. Negative indices count from the end. An index out of range gives
// NaN (0 for integers) and takes no gradient: kernels cannot fail, and a NaN loss is noticed. Nothing is put there, and the
// gradient of such an update is NaN for the same reason.

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

Expected<std::vector<TensorType>> infer_scatter(const InferInput& in) {
  const TensorType &data = in.type(0), &indices = in.type(1), &updates = in.type(2);
  auto fits = infer_elements(in);
  if (!fits) return tl::make_unexpected(fits.error());
  if (updates != TensorType{data.dtype, indices.shape}) {
    return user_error("it puts " + ir::to_string(updates) + " at the places " + ir::to_string(indices) + " of " + ir::to_string(data));
  }
  return std::vector<TensorType>{data};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  Attrs attrs = b.op().attrs;
  attrs.set("shape", b.type(b.input(0)).shape);
  b.add_grad(0, b.emit(b.op().kind + "Grad", {b.grad(0), b.input(1)}, attrs));
}

// An update goes where the index says; what it replaces has no part in the result.
void scatter_gradient(GradientBuilder& b) {
  const ValueId dy = b.grad(0), indices = b.input(1);
  if (!dy.valid()) return;
  const Attrs axis{{"axis", b.op().attrs.i("axis")}};
  if (b.wants(2)) b.add_grad(2, b.emit("GatherElements", {dy, indices}, axis));
  if (!b.wants(0)) return;
  if (b.op().attrs.i("add")) return b.add_grad(0, dy);
  b.add_grad(0, b.emit("ScatterElements", {dy, indices, filled(b, b.type(b.input(2)), 0)}, b.op().attrs));
}

// Picking among the samples mixes them; so does indexing samples with a table of other samples' places.
bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return !inputs[0].shape[static_cast<size_t>(attrs.i("axis"))].is_static();
}

// Samples that put their updates into one thing meet there.
bool scatter_couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) {
  return couples(attrs, inputs, outputs) || !inputs[1].shape[static_cast<size_t>(attrs.i("axis"))].is_static();
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

// Tuples of k places in the dims of `data` behind the batch dims, which are taken as one dim of `size`; each place holds
// `width` elements, and there are `count` tuples (of each batch).
struct Tuples {
  Shape outer;   // the batch dims
  Shape places;  // the dims of the tuples, with the batch dims
  Shape inner;   // the dims of an element
  size_t k = 0;
  int64_t size = 1;
  Dim width = 1, count = 1;

  Shape with(std::initializer_list<Dim> dims) const {
    Shape shape = outer;
    shape.insert(shape.end(), dims);
    return shape;
  }
};

Expected<Tuples> tuples_of(ImportContext& c, ValueId data, ValueId indices, size_t batch) {
  const Shape &from = c.type(data).shape, &by = c.type(indices).shape;
  Tuples t;
  t.k = by.empty() || !by.back().is_static() ? 0 : static_cast<size_t>(by.back().constant);
  if (t.k == 0 || batch + t.k > from.size() || batch >= by.size() ||
      !std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(batch), by.begin())) {
    return user_error("its indices " + ir::to_string(by) + " do not fit " + ir::to_string(from));
  }
  t.outer.assign(by.begin(), by.begin() + static_cast<std::ptrdiff_t>(batch));
  t.places.assign(by.begin(), by.end() - 1);
  t.inner.assign(from.begin() + static_cast<std::ptrdiff_t>(batch + t.k), from.end());
  auto width = count_elements(t.inner), count = count_elements(Shape(t.places.begin() + static_cast<std::ptrdiff_t>(batch), t.places.end()));
  if (!width || !count) return tl::make_unexpected((width ? count : width).error());
  t.width = *width;
  t.count = *count;
  return t;
}

// The place of every tuple in the dim that the k dims make together; sets t.size.
Expected<ValueId> flat_places(ImportContext& c, ValueId data, ValueId indices, Tuples& t) {
  ValueId place;
  for (size_t j = t.k; j-- > 0;) {
    const size_t at_dim = t.outer.size() + j;
    const Dim dim = c.type(data).shape[at_dim];
    if (!dim.is_static()) return user_error("its places are in dim " + std::to_string(at_dim) + ", which depends on the batch size");
    ValueId at = tuple_place(c, indices, static_cast<int64_t>(j), dim.constant);
    if (t.size != 1) at = c.emit("Mul", {at, c.constant(c.type(indices).dtype, static_cast<double>(t.size))});
    place = place.valid() ? c.emit("Add", {place, at}) : at;
    t.size *= dim.constant;
  }
  return place;
}

// An element of every row of `width` picked by the same place.
ValueId row_places(ImportContext& c, ValueId place, const Tuples& t) {
  const ValueId each = c.emit("Reshape", {place}, {{"shape", t.with({t.count, 1})}});
  return c.emit("Expand", {each}, {{"shape", t.with({t.count, t.width})}});
}

Expected<void> import_gather_nd(ImportContext& c) {
  const ValueId data = c.input(0), indices = c.input(1);
  const size_t batch = static_cast<size_t>(c.attrs().i("batch_dims"));
  auto t = tuples_of(c, data, indices, batch);
  if (!t) return tl::make_unexpected(t.error());
  if (batch == 0 && t->k == 1) {
    const ValueId place = c.emit("Reshape", {indices}, {{"shape", t->places}});
    c.set_output(0, c.emit("Gather", {data, place}, {{"axis", int64_t{0}}}));
    return {};
  }
  auto place = flat_places(c, data, indices, *t);
  if (!place) return tl::make_unexpected(place.error());
  const ValueId rows = c.emit("Reshape", {data}, {{"shape", t->with({t->size, t->width})}});
  ValueId picked;
  if (batch == 0) {
    picked = c.emit("Gather", {rows, *place}, {{"axis", int64_t{0}}});
  } else {
    picked = c.emit("GatherElements", {rows, row_places(c, *place, *t)}, {{"axis", static_cast<int64_t>(batch)}});
  }
  Shape shape = t->places;
  shape.insert(shape.end(), t->inner.begin(), t->inner.end());
  c.set_output(0, c.emit("Reshape", {picked}, {{"shape", shape}}));
  return {};
}

// Whether updates are added to what is there; products and extrema are not differentiated.
Expected<int64_t> scatter_adds(ImportContext& c) {
  const std::string reduction = c.attrs().s("reduction", "none");
  if (reduction == "none") return 0;
  if (reduction == "add") return 1;
  return user_error("the reduction `" + reduction + "` is not implemented, `none` and `add` are");
}

Expected<void> import_scatter_nd(ImportContext& c) {
  const ValueId data = c.input(0), indices = c.input(1);
  auto t = tuples_of(c, data, indices, 0);
  auto add = scatter_adds(c);
  if (!t || !add) return tl::make_unexpected((t ? add.error() : t.error()));
  auto place = flat_places(c, data, indices, *t);
  if (!place) return tl::make_unexpected(place.error());
  const ValueId rows = c.emit("Reshape", {data}, {{"shape", Shape{t->size, t->width}}});
  Shape expected = t->places;
  expected.insert(expected.end(), t->inner.begin(), t->inner.end());
  if (c.type(c.input(2)).shape != expected) {
    return user_error("its updates are " + ir::to_string(c.type(c.input(2))) + ", not " + ir::to_string(expected));
  }
  const ValueId updates = c.emit("Reshape", {c.input(2)}, {{"shape", Shape{t->count, t->width}}});
  const Attrs attrs{{"axis", int64_t{0}}, {"add", *add}};
  const ValueId put = c.emit("ScatterElements", {rows, row_places(c, *place, *t), updates}, attrs);
  const Shape shape = c.type(data).shape;
  c.set_output(0, c.emit("Reshape", {put}, {{"shape", shape}}));
  return {};
}

Expected<void> import_scatter_elements(ImportContext& c) {
  auto add = scatter_adds(c);
  auto axis = import_axis(c, 0, c.type(c.input(0)).shape.size());
  if (!add || !axis) return tl::make_unexpected((add ? axis : add).error());
  const Attrs attrs{{"axis", *axis}, {"add", *add}};
  c.set_output(0, c.emit("ScatterElements", {c.input(0), c.input(1), c.input(2)}, attrs));
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
const OpDef kScatterElementsOp = {"ScatterElements", infer_scatter, scatter_gradient, nullptr, flops_none,
                                  {{"Scatter", "", kFirstOpset, 10, import_scatter_elements},
                                   {"ScatterElements", "", 11, kLastOpset, import_scatter_elements},
                                   {"ScatterND", "", 11, kLastOpset, import_scatter_nd}}, 0, scatter_couples};
const OpDef kGatherElementsGradOp = {"GatherElementsGrad", infer_grad, nullptr, kBackwardOnly, flops_none, {}, 1};
const OpDef kGatherGradOp = {"GatherGrad", infer_grad, nullptr, kBackwardOnly, flops_none, {}, 1};

}  // namespace piper::ops
