#include "frontend/onnx/canonical/row_function.h"

#include <algorithm>
#include <array>

namespace piper::frontend {

using ir::Dim;
using ir::Op;
using ir::Shape;
using ir::ValueId;

namespace {

constexpr std::array kRowOps = {"Abs",   "Add",        "Cos",      "Div",    "Erf", "Exp",
                                "Gelu",  "Log",        "Max",      "Min",    "Mul", "Neg",
                                "Pow",   "Reciprocal", "Relu",     "Silu",   "Sin", "Sqrt",
                                "Slice", "Sigmoid",    "Softplus", "SwiGlu", "Sub", "Tanh"};

}  // namespace

Dim elements(const Shape& shape) {
  const auto varies = [](Dim d) { return !d.is_static(); };
  return std::count_if(shape.begin(), shape.end(), varies) > 1 ? Dim(-1) : ir::num_elements(shape);
}

ValueId reshaped(Rewriter& r, ValueId value, Shape shape) {
  return r.emit("Reshape", {value}, {{"shape", std::move(shape)}});
}

ValueId through_reshapes(const Rewriter& r, ValueId value) {
  while (const Op* reshape = r.producer(value, "Reshape")) value = reshape->inputs[0];
  return value;
}

bool swaps_last_two(const Op& transpose, size_t rank) {
  const std::vector<int64_t> perm = transpose.attrs.ints("perm");
  if (rank < 2 || perm.size() != rank) return false;
  for (size_t i = 0; i < rank; i++) {
    const size_t expected = i + 2 < rank ? i : 2 * rank - 3 - i;
    if (perm[i] != static_cast<int64_t>(expected)) return false;
  }
  return true;
}

std::optional<int64_t> RowFunction::width(ValueId value) const {
  const Shape& shape = r_.shape(value);
  for (size_t lead = 0; lead <= shape.size(); lead++) {
    const auto split = shape.begin() + static_cast<std::ptrdiff_t>(lead);
    const Shape rest(split, shape.end());
    if (ir::sample_dim(rest) >= 0 || elements(Shape(shape.begin(), split)) != before_) continue;
    return elements(rest).constant;
  }
  return std::nullopt;
}

bool RowFunction::fits(ValueId value) const {
  const Op* op = r_.producer(through_reshapes(r_, value));
  if (op == nullptr || !width(op->outputs[0])) return false;
  if (is_leaf(*op)) return leaf_fits(*op);
  if (std::find(kRowOps.begin(), kRowOps.end(), op->kind) == kRowOps.end()) return false;
  if (op->kind == "Slice") return slice_attrs(*op).has_value() && fits(op->inputs[0]);
  bool any = false;
  for (ValueId input : op->inputs) {
    if (is_shared(input, *op)) continue;
    if (elements(r_.shape(input)) != elements(r_.shape(op->outputs[0])) || !fits(input))
      return false;
    any = true;
  }
  return any;
}

ValueId RowFunction::build(ValueId value) {
  const Op& op = *r_.producer(through_reshapes(r_, value));
  const int32_t key = static_cast<int32_t>(op.outputs[0].index());
  if (auto it = r_.memo().find(key); it != r_.memo().end()) return it->second;
  const ValueId made =
      is_leaf(op) ? leaf(op) : r_.emit(op.kind.c_str(), inputs(op), attrs(op), &op);
  r_.memo()[key] = made;
  return made;
}

bool RowFunction::replace(const Op& root, ValueId value) {
  const Op& op = *r_.producer(through_reshapes(r_, value));
  if (is_leaf(op)) return r_.replace(root, "Identity", {build(value)}, {});
  return r_.replace(root, op.kind.c_str(), inputs(op), attrs(op), &op);
}

// A number, or a vector along the last dim of the op's result: the same for all rows.
bool RowFunction::is_shared(ValueId input, const Op& op) const {
  const Shape& shape = r_.shape(input);
  if (elements(shape) == Dim(1)) return true;
  const Shape& y = r_.shape(op.outputs[0]);
  return !shape.empty() && shape.back() == elements(shape) && shape.back() == y.back() &&
         elements(y) != shape.back() && width(op.outputs[0]) == shape.back().constant;
}

std::optional<ir::Attrs> RowFunction::slice_attrs(const Op& slice) const {
  const Shape &from = r_.shape(slice.inputs[0]), &to = r_.shape(slice.outputs[0]);
  const std::vector<int64_t> starts = slice.attrs.ints("starts"), steps = slice.attrs.ints("steps");
  const auto whole = width(slice.inputs[0]), part = width(slice.outputs[0]);
  if (!whole || !part) return std::nullopt;
  // The width is one dim of the value; others are rows or 1.
  size_t dim = from.size();
  while (dim > 0 && from[dim - 1] == Dim(1)) dim--;
  if (dim == 0 || from[dim - 1] != Dim(*whole)) return std::nullopt;
  for (size_t i = 0; i < from.size(); i++) {
    if (i != dim - 1 && (starts[i] != 0 || steps[i] != 1 || from[i] != to[i])) return std::nullopt;
  }
  return ir::Attrs{{"starts", std::vector<int64_t>{0, starts[dim - 1]}},
                   {"steps", std::vector<int64_t>{1, steps[dim - 1]}},
                   {"shape", Shape{after_, *part}}};
}

ir::Attrs RowFunction::attrs(const Op& op) const {
  return op.kind == "Slice" ? *slice_attrs(op) : op.attrs;
}

std::vector<ValueId> RowFunction::inputs(const Op& op) {
  std::vector<ValueId> made;
  for (ValueId input : op.inputs) {
    if (op.kind != "Slice" && is_shared(input, op)) {
      const Shape& shape = r_.shape(input);
      made.push_back(shape.size() > 1 ? reshaped(r_, input, {elements(shape)}) : input);
    } else {
      made.push_back(build(input));
    }
  }
  return made;
}

}  // namespace piper::frontend
