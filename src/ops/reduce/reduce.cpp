// Sums, means and extrema over dims. The other reductions of ONNX are made of these.

#include <algorithm>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

// The shape with the reduced dims as 1.
Shape kept_shape(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape kept = shape;
  for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  return kept;
}

Expected<std::vector<TensorType>> infer_reduce(const InferInput& in) {
  const TensorType& x = in.type(0);
  const std::vector<int64_t> axes = in.attrs.ints("axes");
  for (int64_t axis : axes) {
    if (normalize_dim(axis, x.shape.size()) != axis) {
      return user_error("there is no dim " + std::to_string(axis) + " in " + ir::to_string(x));
    }
  }
  Shape shape;
  for (size_t i = 0; i < x.shape.size(); i++) {
    const bool reduced = std::count(axes.begin(), axes.end(), static_cast<int64_t>(i)) > 0;
    if (!reduced) shape.push_back(x.shape[i]);
    if (reduced && in.attrs.i("keepdims", 1)) shape.push_back(1);
  }
  return std::vector<TensorType>{{x.dtype, shape}};
}

// A reduction reads every element once, however few it returns.
double flops_of_input(const CostInput& in) { return static_cast<double>(ir::num_elements(in.inputs.at(0))); }

bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  for (int64_t axis : attrs.ints("axes")) {
    if (!inputs[0].shape[static_cast<size_t>(axis)].is_static()) return true;
  }
  return false;
}

// A value of the result's shape as one that broadcasts to the input.
ValueId with_kept_dims(GradientBuilder& b, ValueId value) {
  const Shape kept = kept_shape(b.type(b.input(0)).shape, b.op().attrs.ints("axes"));
  return b.type(value).shape == kept ? value : b.emit("Reshape", {value}, {{"shape", kept}});
}

void sum_gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  const Shape& shape = b.type(b.input(0)).shape;
  b.add_grad(0, b.emit("Expand", {with_kept_dims(b, b.grad(0))}, {{"shape", shape}}));
}

// The number of elements that a mean is over; as a value when the batch size is part of it.
void mean_gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  const TensorType x = b.type(b.input(0));
  double count = 1;
  ValueId dy = b.grad(0);
  for (int64_t axis : b.op().attrs.ints("axes")) {
    const Dim dim = x.shape[static_cast<size_t>(axis)];
    if (dim.is_static()) {
      count *= static_cast<double>(dim.constant);
      continue;
    }
    const ValueId ones = filled(b, {x.dtype, {dim}}, 1);
    const std::vector<int64_t> all = {0};
    dy = b.emit("Div", {dy, b.emit("ReduceSum", {ones}, {{"axes", all}, {"keepdims", int64_t{0}}})});
  }
  dy = scaled(b, dy, 1 / count);
  b.add_grad(0, b.emit("Expand", {with_kept_dims(b, dy)}, {{"shape", x.shape}}));
}

// Elements that equal the extremum share its gradient evenly, as torch does.
void extremum_gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  const TensorType x = b.type(b.input(0));
  const std::string dtype(ir::dtype_name(x.dtype));
  const std::vector<int64_t> axes = b.op().attrs.ints("axes");
  const ValueId hit = b.emit("Equal", {b.input(0), with_kept_dims(b, b.output(0))});
  const ValueId ones = b.emit("Cast", {hit}, {{"to", dtype}});
  const ValueId ties = b.emit("ReduceSum", {ones}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  const ValueId share = b.emit("Div", {with_kept_dims(b, b.grad(0)), ties});
  b.add_grad(0, b.emit("Where", {hit, share, scalar(b, x.dtype, 0)}));
}

// The axes that the node asks for; all of them when it names none, unless that means "nothing to do".
Expected<std::vector<int64_t>> axes_or_all(ImportContext& context, size_t rank) {
  auto axes = import_axes(context, 1, rank);
  if (!axes || !axes->empty() || context.attrs().i("noop_with_empty_axes", 0)) return axes;
  for (size_t i = 0; i < rank; i++) axes->push_back(static_cast<int64_t>(i));
  return axes;
}

Expected<ValueId> reduce(ImportContext& context, const char* kind, ValueId x) {
  auto axes = axes_or_all(context, context.type(x).shape.size());
  if (!axes) return tl::make_unexpected(axes.error());
  if (axes->empty()) return x;
  return context.emit(kind, {x}, {{"axes", *axes}, {"keepdims", context.attrs().i("keepdims", 1)}});
}

Expected<void> import_reduce(ImportContext& context, const char* kind) {
  auto result = reduce(context, kind, context.input(0));
  if (!result) return tl::make_unexpected(result.error());
  context.set_output(0, *result);
  return {};
}
Expected<void> import_sum(ImportContext& c) { return import_reduce(c, "ReduceSum"); }
Expected<void> import_mean(ImportContext& c) { return import_reduce(c, "ReduceMean"); }
Expected<void> import_max(ImportContext& c) { return import_reduce(c, "ReduceMax"); }
Expected<void> import_min(ImportContext& c) { return import_reduce(c, "ReduceMin"); }

Expected<void> import_norm(ImportContext& context, bool absolute, bool root) {
  const ValueId x = context.input(0);
  const ValueId each = absolute ? context.emit("Abs", {x}) : context.emit("Mul", {x, x});
  auto sum = reduce(context, "ReduceSum", each);
  if (!sum) return tl::make_unexpected(sum.error());
  context.set_output(0, root ? context.emit("Sqrt", {*sum}) : *sum);
  return {};
}
Expected<void> import_l1(ImportContext& c) { return import_norm(c, true, false); }
Expected<void> import_l2(ImportContext& c) { return import_norm(c, false, true); }
Expected<void> import_sum_square(ImportContext& c) { return import_norm(c, false, false); }

// log sum exp x, shifted by the largest element.
Expected<void> import_log_sum_exp(ImportContext& context) {
  const ValueId x = context.input(0);
  auto axes = axes_or_all(context, context.type(x).shape.size());
  if (!axes) return tl::make_unexpected(axes.error());
  if (axes->empty()) {
    context.set_output(0, x);
    return {};
  }
  const Attrs keep{{"axes", *axes}, {"keepdims", int64_t{1}}};
  const ValueId largest = context.emit("ReduceMax", {x}, keep);
  const ValueId sum = context.emit("ReduceSum", {context.emit("Exp", {context.emit("Sub", {x, largest})})}, keep);
  ValueId result = context.emit("Add", {context.emit("Log", {sum}), largest});
  if (!context.attrs().i("keepdims", 1)) {
    const TensorType x_type = context.type(x);
    const Attrs drop{{"axes", *axes}, {"keepdims", int64_t{0}}};
    auto dropped = infer_reduce(InferInput{drop, {&x_type}});
    if (!dropped) return tl::make_unexpected(dropped.error());
    result = context.emit("Reshape", {result}, {{"shape", dropped->front().shape}});
  }
  context.set_output(0, result);
  return {};
}

Expected<void> import_log_sum(ImportContext& context) {
  auto sum = reduce(context, "ReduceSum", context.input(0));
  if (!sum) return tl::make_unexpected(sum.error());
  context.set_output(0, context.emit("Log", {*sum}));
  return {};
}

// The product over `axis`: the halves of the dim times each other until one element is left, so that the gradient is exact
// where elements are 0.
Expected<ValueId> product(ImportContext& context, ValueId x, int64_t axis) {
  const Shape shape = context.type(x).shape;
  const size_t at = static_cast<size_t>(axis);
  if (!shape[at].is_static()) return user_error("it multiplies over the batch");
  const auto part = [&](ValueId of, int64_t from, int64_t size) {
    Shape some = shape;
    some[at] = size;
    std::vector<int64_t> starts(shape.size(), 0);
    starts[at] = from;
    return context.emit("Slice", {of}, {{"starts", starts}, {"steps", std::vector<int64_t>(shape.size(), 1)}, {"shape", some}});
  };
  ValueId last;
  for (int64_t n = shape[at].constant; n > 1; n /= 2) {
    if (n % 2 == 1) {
      const ValueId odd = part(x, n - 1, 1);
      last = last.valid() ? context.emit("Mul", {last, odd}) : odd;
    }
    x = context.emit("Mul", {part(x, 0, n / 2), part(x, n / 2, n / 2)});
  }
  return last.valid() ? context.emit("Mul", {x, last}) : x;
}

Expected<void> import_product(ImportContext& context) {
  ValueId x = context.input(0);
  const TensorType type = context.type(x);
  auto axes = axes_or_all(context, type.shape.size());
  if (!axes) return tl::make_unexpected(axes.error());
  const Attrs attrs{{"axes", *axes}, {"keepdims", context.attrs().i("keepdims", 1)}};
  auto result = infer_reduce(InferInput{attrs, {&type}});
  if (!result) return tl::make_unexpected(result.error());
  const bool none = std::any_of(axes->begin(), axes->end(), [&](int64_t axis) { return type.shape[static_cast<size_t>(axis)] == Dim(0); });
  if (none) {
    const Attrs ones{{"shape", result->front().shape}, {"value", 1.0}, {"dtype", std::string(ir::dtype_name(type.dtype))}};
    context.set_output(0, context.emit("Fill", {}, ones));
    return {};
  }
  for (int64_t axis : *axes) {
    auto next = product(context, x, axis);
    if (!next) return tl::make_unexpected(next.error());
    x = *next;
  }
  context.set_output(0, context.emit("Reshape", {x}, {{"shape", result->front().shape}}));
  return {};
}

// The mean over everything after batch and channel.
Expected<void> import_global_average_pool(ImportContext& context) {
  const ValueId x = context.input(0);
  std::vector<int64_t> axes;
  for (size_t i = 2; i < context.type(x).shape.size(); i++) axes.push_back(static_cast<int64_t>(i));
  if (axes.empty()) return user_error("its input is " + ir::to_string(context.type(x)) + ", without spatial dims");
  context.set_output(0, context.emit("ReduceMean", {x}, {{"axes", axes}, {"keepdims", int64_t{1}}}));
  return {};
}

ImportRule rule(const char* op_type, ImportFn import) { return {op_type, "", kFirstOpset, kLastOpset, import}; }

}  // namespace

const OpDef kReduceMaxOp = {"ReduceMax", infer_reduce, extremum_gradient, nullptr, flops_of_input,
                            {rule("ReduceMax", import_max)}, 0, couples};
const OpDef kReduceMeanOp = {"ReduceMean", infer_reduce, mean_gradient, nullptr, flops_of_input,
                             {rule("ReduceMean", import_mean), rule("GlobalAveragePool", import_global_average_pool)},
                             0, couples};
const OpDef kReduceMinOp = {"ReduceMin", infer_reduce, extremum_gradient, nullptr, flops_of_input,
                            {rule("ReduceMin", import_min)}, 0, couples};
const OpDef kReduceSumOp = {"ReduceSum", infer_reduce, sum_gradient, nullptr, flops_of_input,
                            {rule("ReduceSum", import_sum), rule("ReduceL1", import_l1), rule("ReduceL2", import_l2),
                             rule("ReduceSumSquare", import_sum_square), rule("ReduceLogSumExp", import_log_sum_exp),
                             rule("ReduceLogSum", import_log_sum), rule("ReduceProd", import_product)},
                            1, couples};

}  // namespace piper::ops
