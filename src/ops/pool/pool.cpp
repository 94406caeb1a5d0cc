// Poolings of x[N, C, D1...Dk]. MaxPool keeps where in its plane each maximum was (the first of
// equal ones), which is all that its gradient needs.

#include <algorithm>

#include "ops/import_helpers.h"
#include "ops/window_import.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<TensorType> pooled(const InferInput& in) {
  const TensorType& x = in.type(0);
  auto spatial = spatial_dims(x);
  if (!spatial) return tl::make_unexpected(spatial.error());
  auto window = checked_window(in.attrs, in.attrs.ints("kernel"), spatial->size());
  if (!window) return tl::make_unexpected(window.error());
  TensorType y{x.dtype, {x.shape[0], x.shape[1]}};
  for (size_t i = 0; i < window->rank(); i++) {
    const int64_t positions = window->positions(i, (*spatial)[i], in.attrs.i("ceil") != 0);
    if (positions < 1) return user_error("its kernel is larger than its input " + ir::to_string(x));
    y.shape.push_back(positions);
  }
  return y;
}

Expected<std::vector<TensorType>> infer_max(const InferInput& in) {
  if (in.type(0).dtype == DType::kBool) return user_error("its input is " + ir::to_string(in.type(0)));
  auto y = pooled(in);
  if (!y) return tl::make_unexpected(y.error());
  return std::vector<TensorType>{*y, {DType::kI32, y->shape}};
}

Expected<std::vector<TensorType>> infer_average(const InferInput& in) {
  if (!ir::is_float(in.type(0).dtype)) return user_error("its input is " + ir::to_string(in.type(0)));
  auto y = pooled(in);
  if (!y) return tl::make_unexpected(y.error());
  return std::vector<TensorType>{*y};
}

// The gradient has the type of dy and the spatial sizes `input`.
Expected<std::vector<TensorType>> infer_grad(const InferInput& in) {
  TensorType dx = in.type(0);
  const std::vector<int64_t> input = in.attrs.ints("input");
  if (dx.shape.size() != input.size() + 2 || (in.present(1) && in.type(1).shape != dx.shape)) {
    return user_error("a pooling's dy " + ir::to_string(dx) + " does not fit its input");
  }
  std::copy(input.begin(), input.end(), dx.shape.begin() + 2);
  return std::vector<TensorType>{dx};
}

Expected<std::vector<TensorType>> infer_indices(const InferInput& in) {
  return std::vector<TensorType>{{DType::kI64, in.type(0).shape}};
}

void gradient(GradientBuilder& g, const char* kind, std::vector<ValueId> inputs) {
  Attrs attrs = g.op().attrs;
  std::vector<int64_t> input;
  for (size_t i = 2; i < g.type(g.input(0)).shape.size(); i++) input.push_back(g.type(g.input(0)).shape[i].constant);
  attrs.set("input", input);
  g.add_grad(0, g.emit(kind, std::move(inputs), attrs));
}
void gradient_max(GradientBuilder& g) {
  if (g.grad(0).valid() && g.wants(0)) gradient(g, "MaxPoolGrad", {g.grad(0), g.output(1)});
}
void gradient_average(GradientBuilder& g) {
  if (g.grad(0).valid() && g.wants(0)) gradient(g, "AveragePoolGrad", {g.grad(0)});
}

double flops_per_tap(const CostInput& in) {
  return flops_per_element(in) * static_cast<double>(ir::num_elements(in.attrs.ints("kernel")));
}
double flops_of_dy(const CostInput& in) { return static_cast<double>(ir::num_elements(in.inputs[0])); }
double flops_of_taps(const CostInput& in) {
  return flops_of_dy(in) * static_cast<double>(ir::num_elements(in.attrs.ints("kernel")));
}

Expected<Attrs> import_attrs(ImportContext& c) {
  auto spatial = spatial_dims(c.type(c.input(0)));
  if (!spatial) return tl::make_unexpected(spatial.error());
  auto window = import_window(c, *spatial, {});
  if (!window) return tl::make_unexpected(window.error());
  Attrs attrs{{"kernel", window->kernel}, {"ceil", c.attrs().i("ceil_mode")}};
  set_window(*window, &attrs);
  return attrs;
}

Expected<void> import_max(ImportContext& c) {
  auto attrs = import_attrs(c);
  if (!attrs) return tl::make_unexpected(attrs.error());
  const ValueId x = c.input(0);
  const std::vector<ValueId> results = c.emit_all("MaxPool", {x}, *attrs);
  c.set_output(0, results[0]);
  if (!c.output_used(1)) return {};
  std::vector<int64_t> planes;  // channels and spatial sizes
  for (size_t i = 1; i < c.type(x).shape.size(); i++) planes.push_back(c.type(x).shape[i].constant);
  c.set_output(
      1,
      c.emit("MaxPoolIndices", {results[1]},
             {{"planes", planes}, {"rows", c.type(x).shape[0].batch}, {"column_major", c.attrs().i("storage_order")}}));
  return {};
}

Expected<void> import_average(ImportContext& c) {
  auto attrs = import_attrs(c);
  if (!attrs) return tl::make_unexpected(attrs.error());
  attrs->set("count_include_pad", c.attrs().i("count_include_pad"));
  c.set_output(0, c.emit("AveragePool", {c.input(0)}, *attrs));
  return {};
}

Expected<void> import_global_max(ImportContext& c) {
  const ValueId x = c.input(0);
  std::vector<int64_t> axes;
  for (size_t i = 2; i < c.type(x).shape.size(); i++) axes.push_back(static_cast<int64_t>(i));
  if (axes.empty()) return user_error("its input is " + ir::to_string(c.type(x)) + ", without spatial dims");
  c.set_output(0, c.emit("ReduceMax", {x}, {{"axes", axes}, {"keepdims", int64_t{1}}}));
  return {};
}

}  // namespace

const OpDef kAveragePoolOp = {"AveragePool", infer_average, gradient_average,
                              nullptr,       flops_per_tap, {{"AveragePool", "", 1, kLastOpset, import_average}}};
const OpDef kAveragePoolGradOp = {"AveragePoolGrad", infer_grad, nullptr, kBackwardOnly, flops_of_taps, {}};
const OpDef kMaxPoolOp = {
    "MaxPool",
    infer_max,
    gradient_max,
    nullptr,
    flops_per_tap,
    {{"MaxPool", "", 1, kLastOpset, import_max}, {"GlobalMaxPool", "", 1, kLastOpset, import_global_max}}};
const OpDef kMaxPoolGradOp = {"MaxPoolGrad", infer_grad, nullptr, kBackwardOnly, flops_of_dy, {}};
const OpDef kMaxPoolIndicesOp = {"MaxPoolIndices", infer_indices, nullptr, kIntegerResult, flops_none, {}};

}  // namespace piper::ops
