// Parts of a tensor along its dims, with any steps; Split is several of them.

#include <algorithm>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  const TensorType& x = in.type(0);
  const Shape shape = in.attrs.shape("shape");
  const size_t rank = x.shape.size();
  const std::vector<int64_t> starts = in.attrs.ints("starts"), steps = in.attrs.ints("steps");
  if (shape.size() != rank || starts.size() != rank || steps.size() != rank) {
    return user_error("a slice of " + ir::to_string(x) + " needs a start, a step and a size per dim");
  }
  for (size_t i = 0; i < rank; i++) {
    if (!x.shape[i].is_static() || !shape[i].is_static() || shape[i] == Dim(0)) continue;
    const int64_t last = starts[i] + (shape[i].constant - 1) * steps[i];
    if (std::min(starts[i], last) < 0 || std::max(starts[i], last) >= x.shape[i].constant) {
      return user_error("a slice of " + ir::to_string(x) + " leaves it in dim " + std::to_string(i));
    }
  }
  return std::vector<TensorType>{{x.dtype, shape}};
}

Expected<std::vector<TensorType>> infer_grad(const InferInput& in) {
  return std::vector<TensorType>{{in.type(0).dtype, in.attrs.shape("shape")}};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  Attrs attrs = b.op().attrs;
  attrs.set("shape", b.type(b.input(0)).shape);
  b.add_grad(0, b.emit("SliceGrad", {b.grad(0)}, attrs));
}

bool couples(const Attrs&, const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) {
  for (size_t i = 0; i < inputs[0].shape.size(); i++) {
    if (!inputs[0].shape[i].is_static() && inputs[0].shape[i] != outputs[0].shape[i]) return true;
  }
  return false;
}

struct Range {
  int64_t start = 0;
  int64_t step = 1;
  Dim size;
};

// [start, end) with a step in a dim of known size: negative positions count from the end, then both are clamped.
Range static_range(int64_t size, int64_t start, int64_t end, int64_t step) {
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  auto clamp = [&](int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  // INT64_MIN + size would be a negative position still: it is below everything.
  start = clamp(start);
  end = clamp(end);
  const int64_t span = step > 0 ? end - start : start - end;
  const int64_t stride = std::abs(step);
  return {start, step, Dim(span <= 0 ? 0 : (span + stride - 1) / stride)};
}

// Exporters write "to the end" as INT64_MAX, INT32_MAX or, from TensorFlow, a billion.
constexpr int64_t kBeyondAnyBatch = 1'000'000'000;

// In a dim that depends on the batch size only "from the k-th" and "up to the k-th last" can be told.
Expected<Range> batch_range(Dim size, Dim start, Dim end, int64_t step) {
  const bool far_end = end.is_static() && end.constant >= kBeyondAnyBatch;
  if (end.is_static() && end.constant < 0) end = size + end;
  const bool clear_end = far_end || end == size || (end.batch == size.batch && end.constant < size.constant);
  if (step != 1 || !start.is_static() || start.constant < 0 || !clear_end) {
    return user_error("it cuts a dim of size " + ir::to_string(size) + " from " + ir::to_string(start) + " to " +
                          ir::to_string(end) + " with step " + std::to_string(step),
                      "the batch dim can only be cut at fixed distances from its ends");
  }
  return Range{start.constant, 1, (far_end ? size : end) - start};
}

Expected<Range> range_of(Dim size, Dim start, Dim end, int64_t step) {
  if (step == 0) return user_error("its step is 0");
  if (!size.is_static()) return batch_range(size, start, end, step);
  if (!start.is_static() || !end.is_static()) {
    return user_error("it cuts a dim of size " + ir::to_string(size) + " at a place that depends on the batch size");
  }
  return static_range(size.constant, start.constant, end.constant, step);
}

ValueId emit_slice(ImportContext& context, const std::vector<Range>& ranges) {
  std::vector<int64_t> starts, steps;
  Shape shape;
  for (const Range& range : ranges) {
    starts.push_back(range.start);
    steps.push_back(range.step);
    shape.push_back(range.size);
  }
  return context.emit("Slice", {context.input(0)}, {{"starts", starts}, {"steps", steps}, {"shape", shape}});
}

std::vector<Range> whole(const Shape& shape) {
  std::vector<Range> ranges;
  for (Dim dim : shape) ranges.push_back({0, 1, dim});
  return ranges;
}

// Attributes until opset 9, inputs from then on.
std::optional<std::vector<Dim>> bounds(ImportContext& context, size_t i, const char* name) {
  if (const std::vector<Dim>* known = context.known_ints(i)) return *known;
  if (!context.attrs().has(name)) return std::nullopt;
  const std::vector<int64_t> values = context.attrs().ints(name);
  return std::vector<Dim>(values.begin(), values.end());
}

Expected<void> import_slice(ImportContext& context) {
  const Shape shape = context.type(context.input(0)).shape;
  auto starts = bounds(context, 1, "starts"), ends = bounds(context, 2, "ends");
  if (!starts || !ends) return user_error("its starts and ends are not known when the model is read");
  std::vector<int64_t> axes, steps(starts->size(), 1);
  for (size_t i = 0; i < starts->size(); i++) axes.push_back(static_cast<int64_t>(i));
  if (context.attrs().has("axes")) {
    axes = context.attrs().ints("axes");
  } else if (context.has_input(3)) {
    auto known = static_ints(context, 3, "axes");
    if (!known) return tl::make_unexpected(known.error());
    axes = *known;
  }
  if (context.has_input(4)) {
    auto known = static_ints(context, 4, "steps");
    if (!known) return tl::make_unexpected(known.error());
    steps = *known;
  }
  if (ends->size() != starts->size() || axes.size() != starts->size() || steps.size() != starts->size()) {
    return user_error("its starts, ends, axes and steps differ in number");
  }
  std::vector<Range> ranges = whole(shape);
  for (size_t i = 0; i < axes.size(); i++) {
    const int64_t axis = normalize_dim(axes[i], shape.size());
    if (axis < 0) return user_error("axis " + std::to_string(axes[i]) + " of " + ir::to_string(shape));
    auto range = range_of(shape[static_cast<size_t>(axis)], (*starts)[i], (*ends)[i], steps[i]);
    if (!range) return tl::make_unexpected(range.error());
    ranges[static_cast<size_t>(axis)] = *range;
  }
  context.set_output(0, emit_slice(context, ranges));
  return {};
}

// Sizes of the parts of a dim; without sizes they are equal, and the last one is what is left.
Expected<std::vector<int64_t>> split_sizes(ImportContext& context, int64_t size) {
  if (context.has_input(1)) return static_ints(context, 1, "sizes");
  if (context.attrs().has("split")) return context.attrs().ints("split");
  const int64_t parts = context.attrs().i("num_outputs", static_cast<int64_t>(context.num_outputs()));
  if (parts <= 0) return user_error("it has no outputs");
  const int64_t each = (size + parts - 1) / parts;
  std::vector<int64_t> sizes;
  for (int64_t at = 0; static_cast<int64_t>(sizes.size()) < parts; at += each) {
    sizes.push_back(std::clamp<int64_t>(size - at, 0, each));
  }
  return sizes;
}

Expected<void> import_split(ImportContext& context) {
  const Shape shape = context.type(context.input(0)).shape;
  auto axis = import_axis(context, 0, shape.size());
  if (!axis) return tl::make_unexpected(axis.error());
  const Dim size = shape[static_cast<size_t>(*axis)];
  if (!size.is_static()) return user_error("it splits the batch dim of " + ir::to_string(shape));
  auto sizes = split_sizes(context, size.constant);
  if (!sizes) return tl::make_unexpected(sizes.error());
  int64_t start = 0;
  for (size_t i = 0; i < sizes->size(); i++) {
    std::vector<Range> ranges = whole(shape);
    ranges[static_cast<size_t>(*axis)] = {start, 1, (*sizes)[i]};
    if (i < context.num_outputs() && context.output_used(i)) context.set_output(i, emit_slice(context, ranges));
    start += (*sizes)[i];
  }
  if (start != size.constant) return user_error("its sizes sum to " + std::to_string(start) + ", but the dim has " + ir::to_string(size));
  return {};
}

}  // namespace

const OpDef kSliceOp = {"Slice", infer, gradient, nullptr, flops_none,
                        {{"Slice", "", kFirstOpset, kLastOpset, import_slice},
                         {"Split", "", kFirstOpset, kLastOpset, import_split}},
                        0, couples};
const OpDef kSliceGradOp = {"SliceGrad", infer_grad, nullptr, kBackwardOnly, flops_none, {}};

}  // namespace piper::ops
