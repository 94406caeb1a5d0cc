// Convolutions of x[N, C, D1...Dk] with a weight [M, C / group, K1...Kk]. The transposed
// convolution is the gradient of a convolution with respect to its input and the other way round,
// so one op serves as both; likewise the gradient of the weight is the same op for both, with the
// roles of input and output swapped.

#include "ops/import_helpers.h"
#include "ops/window_import.h"

namespace piper::ops {

namespace {

using support::user_error;

std::vector<int64_t> constants(const Shape& shape, size_t from) {
  std::vector<int64_t> values;
  for (size_t i = from; i < shape.size(); i++) values.push_back(shape[i].constant);
  return values;
}

// What both directions need: a batch of images, a static weight, and a group that divides the
// weight's first dim.
Expected<Window> check_operands(const InferInput& in) {
  const TensorType &x = in.type(0), &w = in.type(1);
  auto spatial = spatial_dims(x);
  if (!spatial) return tl::make_unexpected(spatial.error());
  const int64_t group = in.attrs.i("group", 1);
  if (w.shape.size() != x.shape.size() || w.dtype != x.dtype || !ir::is_float(x.dtype) ||
      ir::sample_dim(w.shape) >= 0) {
    return user_error("its weight " + ir::to_string(w) + " does not fit its input " + ir::to_string(x));
  }
  if (group < 1 || w.shape[0].constant % group != 0) {
    return user_error("its group " + std::to_string(group) + " does not divide the weight " + ir::to_string(w));
  }
  return checked_window(in.attrs, constants(w.shape, 2), spatial->size());
}

Expected<std::vector<TensorType>> infer_conv(const InferInput& in) {
  auto window = check_operands(in);
  if (!window) return tl::make_unexpected(window.error());
  const TensorType &x = in.type(0), &w = in.type(1);
  if (x.shape[1].constant != w.shape[1].constant * in.attrs.i("group", 1)) {
    return user_error("its weight " + ir::to_string(w) + " does not fit the channels of " + ir::to_string(x));
  }
  if (in.present(2) && in.type(2) != TensorType{x.dtype, {w.shape[0]}}) {
    return user_error("its bias " + ir::to_string(in.type(2)) + " does not fit its weight " + ir::to_string(w));
  }
  TensorType y{x.dtype, {x.shape[0], w.shape[0]}};
  for (size_t i = 0; i < window->rank(); i++) {
    const int64_t positions = window->positions(i, x.shape[2 + i].constant);
    if (positions < 1) return user_error("its kernel is larger than its input " + ir::to_string(x));
    y.shape.push_back(positions);
  }
  return std::vector<TensorType>{y};
}

Expected<std::vector<TensorType>> infer_transpose(const InferInput& in) {
  auto window = check_operands(in);
  if (!window) return tl::make_unexpected(window.error());
  const TensorType &x = in.type(0), &w = in.type(1);
  const std::vector<int64_t> output = in.attrs.ints("output");
  if (x.shape[1] != w.shape[0] || output.size() != window->rank()) {
    return user_error("its weight " + ir::to_string(w) + " does not fit its input " + ir::to_string(x));
  }
  TensorType y{x.dtype, {x.shape[0], w.shape[1].constant * in.attrs.i("group", 1)}};
  for (size_t i = 0; i < output.size(); i++) {
    if (output[i] < 1 || window->positions(i, output[i]) != x.shape[2 + i].constant) {
      return user_error("an output of " + std::to_string(output[i]) + " elements does not fit its input " +
                        ir::to_string(x));
    }
    y.shape.push_back(output[i]);
  }
  return std::vector<TensorType>{y};
}

Expected<std::vector<TensorType>> infer_grad_weight(const InferInput& in) {
  const TensorType &x = in.type(0), &dy = in.type(1);
  auto spatial = spatial_dims(x);
  if (!spatial) return tl::make_unexpected(spatial.error());
  const int64_t group = in.attrs.i("group", 1);
  auto window = checked_window(in.attrs, in.attrs.ints("kernel"), spatial->size());
  if (!window) return tl::make_unexpected(window.error());
  bool fits =
      dy.shape.size() == x.shape.size() && dy.shape[0] == x.shape[0] && group > 0 && x.shape[1].constant % group == 0;
  for (size_t i = 0; fits && i < spatial->size(); i++) {
    fits = dy.shape[2 + i] == Dim(window->positions(i, (*spatial)[i]));
  }
  if (!fits) return user_error("ConvGradWeight: dy " + ir::to_string(dy) + " does not fit x " + ir::to_string(x));
  TensorType w{x.dtype, {dy.shape[1], x.shape[1].constant / group}};
  w.shape.insert(w.shape.end(), window->kernel.begin(), window->kernel.end());
  return std::vector<TensorType>{w};
}

Attrs with(Attrs attrs, const char* name, std::vector<int64_t> values) {
  attrs.set(name, std::move(values));
  return attrs;
}

Attrs window_attrs(Attrs attrs) {
  attrs.erase("output");
  attrs.erase("kernel");
  return attrs;
}

void gradient_conv(GradientBuilder& g) {
  const ValueId dy = g.grad(0), x = g.input(0), w = g.input(1);
  if (!dy.valid()) return;
  const Attrs attrs = window_attrs(g.op().attrs);
  if (g.wants(0)) g.add_grad(0, g.emit("ConvTranspose", {dy, w}, with(attrs, "output", constants(g.type(x).shape, 2))));
  if (g.wants(1))
    g.add_grad(1, g.emit("ConvGradWeight", {x, dy}, with(attrs, "kernel", constants(g.type(w).shape, 2))));
  if (g.input(2).valid() && g.wants(2)) {
    std::vector<int64_t> axes{0};
    for (size_t i = 2; i < g.type(dy).shape.size(); i++) axes.push_back(static_cast<int64_t>(i));
    g.add_grad(2, g.emit("ReduceSum", {dy}, {{"axes", axes}, {"keepdims", int64_t{0}}}));
  }
}

void gradient_transpose(GradientBuilder& g) {
  const ValueId dy = g.grad(0), x = g.input(0), w = g.input(1);
  if (!dy.valid()) return;
  const Attrs attrs = window_attrs(g.op().attrs);
  if (g.wants(0)) g.add_grad(0, g.emit("Conv", {dy, w}, attrs));
  if (g.wants(1))
    g.add_grad(1, g.emit("ConvGradWeight", {dy, x}, with(attrs, "kernel", constants(g.type(w).shape, 2))));
}

// Two operations per tap of the weight, and position of the smaller image.
double flops(const std::vector<int64_t>& images, int64_t channels, int64_t group, const std::vector<int64_t>& kernel) {
  return 2.0 * static_cast<double>(ir::num_elements(images)) * static_cast<double>(channels / group) *
         static_cast<double>(ir::num_elements(kernel));
}
std::vector<int64_t> kernel_of(const std::vector<int64_t>& weight) { return {weight.begin() + 2, weight.end()}; }
double flops_conv(const CostInput& in) {
  return flops(in.outputs[0], in.inputs[0][1], in.attrs.i("group", 1), kernel_of(in.inputs[1])) +
         (in.inputs.size() > 2 && !in.inputs[2].empty() ? flops_per_element(in) : 0);
}
double flops_transpose(const CostInput& in) {
  return flops(in.inputs[0], in.outputs[0][1], in.attrs.i("group", 1), kernel_of(in.inputs[1]));
}
double flops_grad_weight(const CostInput& in) {
  return flops(in.inputs[1], in.inputs[0][1], in.attrs.i("group", 1), kernel_of(in.outputs[0]));
}

// The weight of a node and the sizes of its input.
struct Operands {
  ValueId x, w;
  std::vector<int64_t> spatial, kernel;
};
Expected<Operands> import_operands(ImportContext& c) {
  Operands o{c.input(0), c.input(1), {}, {}};
  auto spatial = spatial_dims(c.type(o.x));
  if (!spatial) return tl::make_unexpected(spatial.error());
  o.spatial = *spatial;
  const TensorType w = c.type(o.w);
  if (w.shape.size() != c.type(o.x).shape.size() || ir::sample_dim(w.shape) >= 0) {
    return user_error("its weight " + ir::to_string(w) + " does not fit its input " + ir::to_string(c.type(o.x)));
  }
  o.kernel = constants(w.shape, 2);
  return o;
}

Expected<void> import_conv(ImportContext& c) {
  auto o = import_operands(c);
  if (!o) return tl::make_unexpected(o.error());
  auto window = import_window(c, o->spatial, o->kernel);
  if (!window) return tl::make_unexpected(window.error());
  Attrs attrs{{"group", c.attrs().i("group", 1)}};
  set_window(*window, &attrs);
  c.set_output(0, c.emit("Conv", {o->x, o->w, c.has_input(2) ? c.input(2) : ValueId()}, attrs));
  return {};
}

// Sizes of the output and the padding of the convolution whose transpose this is: whichever of
// `pads`, `auto_pad` and `output_shape` the node has.
Expected<std::vector<int64_t>> transposed_sizes(ImportContext& c, const std::vector<int64_t>& in, Window* window) {
  const Attrs& attrs = c.attrs();
  std::vector<int64_t> extra = attrs.ints("output_padding"), output = attrs.ints("output_shape");
  if (extra.empty()) extra.assign(in.size(), 0);
  // Some exporters write batch and channels too.
  if (output.size() == in.size() + 2) output.erase(output.begin(), output.begin() + 2);
  if (extra.size() != in.size() || (!output.empty() && output.size() != in.size())) {
    return user_error("its `output_padding` or `output_shape` does not fit " + std::to_string(in.size()) +
                      " spatial dims");
  }
  for (const auto* sizes : {&extra, &output}) {
    for (int64_t size : *sizes) {
      if (size < 0 || size > kLargestSize)
        return user_error("its `output_padding` or `output_shape` has a value of " + std::to_string(size));
    }
  }
  const std::string auto_pad = attrs.s("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < in.size(); i++) {
    const int64_t full = window->strides[i] * (in[i] - 1) + extra[i] + window->extent(i);
    if (output.empty() && !same) {
      sizes.push_back(full - window->begin[i] - window->end[i]);
      continue;
    }
    sizes.push_back(output.empty() ? in[i] * window->strides[i] : output[i]);
    // Less than nothing is cut off where the output is larger than the taps reach.
    const int64_t total = full - sizes.back(), half = total / 2;
    window->begin[i] = auto_pad == "SAME_UPPER" ? half : total - half;
    if (total < 0) window->begin[i] = 0;
    window->end[i] = total - window->begin[i];
  }
  return sizes;
}

Expected<void> import_transpose(ImportContext& c) {
  auto o = import_operands(c);
  if (!o) return tl::make_unexpected(o.error());
  auto window = import_window(c, o->spatial, o->kernel);
  if (!window) return tl::make_unexpected(window.error());
  auto sizes = transposed_sizes(c, o->spatial, &*window);
  if (!sizes) return tl::make_unexpected(sizes.error());
  Attrs attrs{{"group", c.attrs().i("group", 1)}, {"output", *sizes}};
  set_window(*window, &attrs);
  ValueId y = c.emit("ConvTranspose", {o->x, o->w}, attrs);
  if (c.has_input(2)) {
    Shape shape(o->spatial.size() + 2, 1);
    shape[1] = c.type(y).shape[1];
    y = c.emit("Add", {y, c.emit("Reshape", {c.input(2)}, {{"shape", shape}})});
  }
  c.set_output(0, y);
  return {};
}

}  // namespace

const OpDef kConvOp = {"Conv",  infer_conv, gradient_conv,
                       nullptr, flops_conv, {{"Conv", "", 1, kLastOpset, import_conv}}};
const OpDef kConvTransposeOp = {"ConvTranspose",    infer_transpose,
                                gradient_transpose, nullptr,
                                flops_transpose,    {{"ConvTranspose", "", 1, kLastOpset, import_transpose}}};
const OpDef kConvGradWeightOp = {"ConvGradWeight", infer_grad_weight, nullptr, kBackwardOnly, flops_grad_weight, {}, 1};

}  // namespace piper::ops
