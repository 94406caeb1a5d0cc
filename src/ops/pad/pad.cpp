// A constant around a tensor; ONNX's other modes of padding are parts of the tensor, put together.

#include <algorithm>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;
using Ints = std::vector<int64_t>;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  TensorType result = in.type(0);
  const Ints begin = in.attrs.ints("begin"), end = in.attrs.ints("end");
  if (begin.size() != result.shape.size() || end.size() != result.shape.size()) {
    return user_error("padding " + ir::to_string(result) + " needs a begin and an end per dim");
  }
  for (size_t i = 0; i < begin.size(); i++) {
    if (begin[i] < 0 || end[i] < 0) return user_error("a padding is negative");
    if (!result.shape[i].is_static() && begin[i] + end[i] > 0) return user_error("it pads the batch dim of " + ir::to_string(result));
    result.shape[i] = result.shape[i] + Dim(begin[i] + end[i]);
  }
  return std::vector<TensorType>{result};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  const Shape shape = b.type(b.input(0)).shape;
  const Ints starts = b.op().attrs.ints("begin"), steps(shape.size(), 1);
  b.add_grad(0, b.emit("Slice", {b.grad(0)}, {{"starts", starts}, {"steps", steps}, {"shape", shape}}));
}

struct Paddings {
  Ints begin, end;  // per dim; negative ones cut
};

// Begins, then ends, of the dims that `axes` names.
Expected<Paddings> paddings(ImportContext& context, size_t rank) {
  Ints pads = context.attrs().ints("pads");  // until opset 10; an input from then on
  if (!context.attrs().has("pads")) {
    auto known = static_ints(context, 1, "pads");
    if (!known) return tl::make_unexpected(known.error());
    pads = *known;
  }
  Ints axes;
  if (context.has_input(3)) {
    auto known = static_ints(context, 3, "axes");
    if (!known) return tl::make_unexpected(known.error());
    axes = *known;
  } else {
    for (size_t i = 0; i < rank; i++) axes.push_back(static_cast<int64_t>(i));
  }
  if (pads.size() != 2 * axes.size()) return user_error("it has " + std::to_string(pads.size()) + " pads for " + std::to_string(axes.size()) + " dims");
  Paddings all{Ints(rank, 0), Ints(rank, 0)};
  for (size_t i = 0; i < axes.size(); i++) {
    const int64_t axis = normalize_dim(axes[i], rank);
    if (axis < 0) return user_error("there is no dim " + std::to_string(axes[i]));
    all.begin[static_cast<size_t>(axis)] = pads[i];
    all.end[static_cast<size_t>(axis)] = pads[i + axes.size()];
  }
  return all;
}

// x without what negative paddings cut; they are 0 afterwards.
Expected<ValueId> cut(ImportContext& context, ValueId x, Paddings* pads) {
  Shape shape = context.type(x).shape;
  Ints starts(shape.size(), 0), steps(shape.size(), 1);
  bool cuts = false;
  for (size_t i = 0; i < shape.size(); i++) {
    int64_t& begin = pads->begin[i];
    int64_t& end = pads->end[i];
    const int64_t gone = std::max<int64_t>(0, -begin) + std::max<int64_t>(0, -end);
    if (gone == 0) continue;
    if (!shape[i].is_static() || gone > shape[i].constant) return user_error("it cuts " + std::to_string(gone) + " from dim " + std::to_string(i) + " of " + ir::to_string(shape));
    cuts = true;
    starts[i] = std::max<int64_t>(0, -begin);
    shape[i] = shape[i] - Dim(gone);
    begin = std::max<int64_t>(0, begin);
    end = std::max<int64_t>(0, end);
  }
  return cuts ? context.emit("Slice", {x}, {{"starts", starts}, {"steps", steps}, {"shape", shape}}) : x;
}

// `size` places of dim `i` from `start` on, forwards or backwards.
ValueId part(ImportContext& context, ValueId x, size_t i, int64_t start, int64_t size, int64_t step) {
  Shape shape = context.type(x).shape;
  Ints starts(shape.size(), 0), steps(shape.size(), 1);
  starts[i] = start;
  steps[i] = step;
  shape[i] = size;
  return context.emit("Slice", {x}, {{"starts", starts}, {"steps", steps}, {"shape", shape}});
}

// Dim `i` with copies of its own values around it, each piece taken out of the dim: for [a b c d] and two before,
// "reflect" gives c b, "edge" a a and "wrap" c d.
Expected<ValueId> pad_with_itself(ImportContext& context, ValueId x, size_t i, const std::string& mode, int64_t begin, int64_t end) {
  const Dim dim = context.type(x).shape[i];
  const int64_t size = dim.constant, most = mode == "reflect" ? size - 1 : size;
  if (!dim.is_static()) return user_error("it pads the batch dim of " + ir::to_string(context.type(x)));
  if (size < 1 || (mode != "edge" && std::max(begin, end) > most)) {
    return user_error("it pads a dim of " + std::to_string(size) + " by " + std::to_string(std::max(begin, end)) + " with mode `" + mode + "`");
  }
  std::vector<ValueId> pieces;
  const auto add = [&](int64_t count, int64_t start, int64_t step) {
    if (count == 0) return;
    if (mode != "edge") return pieces.push_back(part(context, x, i, start, count, step));
    Shape shape = context.type(x).shape;
    shape[i] = count;
    pieces.push_back(context.emit("Expand", {part(context, x, i, start, 1, 1)}, {{"shape", shape}}));
  };
  add(begin, mode == "reflect" ? begin : mode == "wrap" ? size - begin : 0, mode == "reflect" ? -1 : 1);
  pieces.push_back(x);
  add(end, mode == "reflect" ? size - 2 : mode == "wrap" ? 0 : size - 1, mode == "reflect" ? -1 : 1);
  return context.emit("Concat", pieces, {{"axis", static_cast<int64_t>(i)}});
}

Expected<void> import(ImportContext& context) {
  const std::string mode = context.attrs().s("mode", "constant");
  ValueId x = context.input(0);
  auto pads = paddings(context, context.type(x).shape.size());
  if (!pads) return tl::make_unexpected(pads.error());
  auto rest = cut(context, x, &*pads);
  if (!rest) return tl::make_unexpected(rest.error());
  x = *rest;
  if (mode == "constant") {
    double value = context.attrs().f("value", 0);  // until opset 10
    if (context.has_input(2)) {
      const std::optional<double> known = context.known_scalar(2);
      if (!known) return user_error("its value is not known when the model is read");
      value = *known;
    }
    context.set_output(0, context.emit("Pad", {x}, {{"begin", pads->begin}, {"end", pads->end}, {"value", value}}));
    return {};
  }
  if (mode != "reflect" && mode != "edge" && mode != "wrap") return user_error("its mode is `" + mode + "`");
  for (size_t i = 0; i < pads->begin.size(); i++) {
    if (pads->begin[i] == 0 && pads->end[i] == 0) continue;
    auto padded = pad_with_itself(context, x, i, mode, pads->begin[i], pads->end[i]);
    if (!padded) return tl::make_unexpected(padded.error());
    x = *padded;
  }
  context.set_output(0, x);
  return {};
}

}  // namespace

const OpDef kPadOp = {"Pad", infer, gradient, nullptr, flops_none, {{"Pad", "", kFirstOpset, kLastOpset, import}}};

}  // namespace piper::ops
