// A constant around a tensor.

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

// The paddings of every dim: begins, then ends, of the dims that `axes` names.
Expected<std::pair<Ints, Ints>> paddings(ImportContext& context, size_t rank) {
  auto pads = static_ints(context, 1, "pads");
  if (!pads) return tl::make_unexpected(pads.error());
  Ints axes;
  if (context.has_input(3)) {
    auto known = static_ints(context, 3, "axes");
    if (!known) return tl::make_unexpected(known.error());
    axes = *known;
  } else {
    for (size_t i = 0; i < rank; i++) axes.push_back(static_cast<int64_t>(i));
  }
  if (pads->size() != 2 * axes.size()) return user_error("it has " + std::to_string(pads->size()) + " pads for " + std::to_string(axes.size()) + " dims");
  Ints begin(rank, 0), end(rank, 0);
  for (size_t i = 0; i < axes.size(); i++) {
    const int64_t axis = normalize_dim(axes[i], rank);
    if (axis < 0) return user_error("there is no dim " + std::to_string(axes[i]));
    begin[static_cast<size_t>(axis)] = (*pads)[i];
    end[static_cast<size_t>(axis)] = (*pads)[i + axes.size()];
  }
  return std::pair(begin, end);
}

Expected<void> import(ImportContext& context) {
  const std::string mode = context.attrs().s("mode", "constant");
  if (mode != "constant") return user_error("its mode is `" + mode + "`; only `constant` is supported");
  ValueId x = context.input(0);
  Shape shape = context.type(x).shape;
  auto pads = paddings(context, shape.size());
  if (!pads) return tl::make_unexpected(pads.error());
  auto [begin, end] = *pads;
  double value = 0;
  if (context.has_input(2)) {
    const std::optional<double> known = context.known_scalar(2);
    if (!known) return user_error("its value is not known when the model is read");
    value = *known;
  }
  // Negative paddings cut.
  Ints starts(shape.size(), 0), steps(shape.size(), 1);
  bool cuts = false;
  for (size_t i = 0; i < shape.size(); i++) {
    const int64_t cut = std::max<int64_t>(0, -begin[i]) + std::max<int64_t>(0, -end[i]);
    if (cut == 0) continue;
    if (!shape[i].is_static() || cut > shape[i].constant) return user_error("it cuts " + std::to_string(cut) + " from dim " + std::to_string(i) + " of " + ir::to_string(shape));
    cuts = true;
    starts[i] = std::max<int64_t>(0, -begin[i]);
    shape[i] = shape[i] - Dim(cut);
    begin[i] = std::max<int64_t>(0, begin[i]);
    end[i] = std::max<int64_t>(0, end[i]);
  }
  if (cuts) x = context.emit("Slice", {x}, {{"starts", starts}, {"steps", steps}, {"shape", shape}});
  context.set_output(0, context.emit("Pad", {x}, {{"begin", begin}, {"end", end}, {"value", value}}));
  return {};
}

}  // namespace

const OpDef kPadOp = {"Pad", infer, gradient, nullptr, flops_none, {{"Pad", "", kFirstOpset, kLastOpset, import}}};

}  // namespace piper::ops
