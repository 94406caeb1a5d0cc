// Functions of two tensors with numpy's broadcasting, and what ONNX has besides that is made of them: Sum, Mean, Clip.

#include <functional>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<Shape> broadcast_inputs(const InferInput& in) { return broadcast(in.type(0).shape, in.type(1).shape); }

Expected<std::vector<TensorType>> infer_typed(const InferInput& in, DType result, bool same_operands) {
  if (same_operands && in.type(0).dtype != in.type(1).dtype) {
    return user_error("its operands have types " + ir::to_string(in.type(0)) + " and " + ir::to_string(in.type(1)));
  }
  auto shape = broadcast_inputs(in);
  if (!shape) return tl::make_unexpected(shape.error());
  return std::vector<TensorType>{{result, *shape}};
}

Expected<std::vector<TensorType>> infer_arithmetic(const InferInput& in) {
  if (in.type(0).dtype == DType::kBool) return user_error("its operands are bool");
  return infer_typed(in, in.type(0).dtype, true);
}
Expected<std::vector<TensorType>> infer_comparison(const InferInput& in) { return infer_typed(in, DType::kBool, true); }
Expected<std::vector<TensorType>> infer_logical(const InferInput& in) {
  if (in.type(0).dtype != DType::kBool) return user_error("its operands are not bool");
  return infer_typed(in, DType::kBool, true);
}
// The exponent may have another type than the base.
Expected<std::vector<TensorType>> infer_pow(const InferInput& in) { return infer_typed(in, in.type(0).dtype, false); }

// Adds make(grad) to input i, summed over the dims it was broadcast along.
void contribute(GradientBuilder& b, size_t i, const std::function<ValueId(ValueId)>& make) {
  if (!b.grad(0).valid() || !b.wants(i)) return;
  b.add_grad(i, b.sum_to(make(b.grad(0)), b.input(i)));
}

void add_gradient(GradientBuilder& b) {
  contribute(b, 0, [](ValueId dy) { return dy; });
  contribute(b, 1, [](ValueId dy) { return dy; });
}

void sub_gradient(GradientBuilder& b) {
  contribute(b, 0, [](ValueId dy) { return dy; });
  if (!b.grad(0).valid() || !b.wants(1)) return;
  // The sign after the sum, where there is less to negate.
  b.add_grad(1, b.emit("Neg", {b.sum_to(b.grad(0), b.input(1))}));
}

void mul_gradient(GradientBuilder& b) {
  contribute(b, 0, [&](ValueId dy) { return b.emit("Mul", {dy, b.input(1)}); });
  contribute(b, 1, [&](ValueId dy) { return b.emit("Mul", {dy, b.input(0)}); });
}

void div_gradient(GradientBuilder& b) {
  contribute(b, 0, [&](ValueId dy) { return b.emit("Div", {dy, b.input(1)}); });
  contribute(b, 1, [&](ValueId dy) {
    const ValueId square = b.emit("Mul", {b.input(1), b.input(1)});
    return b.emit("Neg", {b.emit("Div", {b.emit("Mul", {dy, b.input(0)}), square})});
  });
}

// Where both operands are equal each gets half, as torch does.
void extremum_gradient(GradientBuilder& b, const char* wins) {
  for (size_t i = 0; i < 2; i++) {
    contribute(b, i, [&](ValueId dy) {
      const ValueId zero = scalar(b, b.type(dy).dtype, 0);
      const ValueId tie = b.emit("Equal", {b.input(i), b.input(1 - i)});
      const ValueId half = b.emit("Where", {tie, scaled(b, dy, 0.5), zero});
      return b.emit("Where", {b.emit(wins, {b.input(i), b.input(1 - i)}), dy, half});
    });
  }
}
void max_gradient(GradientBuilder& b) { extremum_gradient(b, "Greater"); }
void min_gradient(GradientBuilder& b) { extremum_gradient(b, "Less"); }

// a mod b = a - q b with a whole number q that doesn't move.
void mod_gradient(GradientBuilder& b) {
  contribute(b, 0, [](ValueId dy) { return dy; });
  contribute(b, 1, [&](ValueId dy) {
    const ValueId minus_qb = b.emit("Sub", {b.output(0), b.input(0)});
    return b.emit("Mul", {dy, b.emit("Div", {minus_qb, b.input(1)})});
  });
}

void pow_gradient(GradientBuilder& b) {
  const DType dtype = b.type(b.input(0)).dtype;
  contribute(b, 0, [&](ValueId dy) {
    ValueId exponent = b.input(1);
    if (b.type(exponent).dtype != dtype) {
      exponent = b.emit("Cast", {exponent}, {{"to", std::string(ir::dtype_name(dtype))}});
    }
    // x^0 has derivative 0 also where x^-1 is infinite: its power becomes 1 instead of -1.
    const ValueId is_zero = b.emit("Equal", {exponent, scalar(b, dtype, 0)});
    const ValueId lower = b.emit("Sub", {exponent, scalar(b, dtype, 1)});
    const ValueId power = b.emit("Pow", {b.input(0), b.emit("Where", {is_zero, scalar(b, dtype, 1), lower})});
    return b.emit("Mul", {b.emit("Mul", {dy, exponent}), power});
  });
  contribute(b, 1, [&](ValueId dy) {
    // At a base of 0 the limit is 0, but the logarithm is not.
    const ValueId zero = scalar(b, dtype, 0);
    const ValueId slope = b.emit("Mul", {b.output(0), b.emit("Log", {b.input(0)})});
    const ValueId safe = b.emit("Where", {b.emit("Equal", {b.input(0), zero}), zero, slope});
    return b.emit("Mul", {dy, safe});
  });
}

// Max, Min and Sum take any number of inputs.
Expected<ValueId> chain(ImportContext& context, const char* kind) {
  if (context.num_inputs() == 0) return user_error("it has no inputs");
  ValueId result = context.input(0);
  for (size_t i = 1; i < context.num_inputs(); i++) result = context.emit(kind, {result, context.input(i)});
  return result;
}

Expected<void> import_chain(ImportContext& context, const char* kind) {
  auto result = chain(context, kind);
  if (!result) return tl::make_unexpected(result.error());
  context.set_output(0, *result);
  return {};
}
Expected<void> import_sum(ImportContext& context) { return import_chain(context, "Add"); }
Expected<void> import_max(ImportContext& context) { return import_chain(context, "Max"); }
Expected<void> import_min(ImportContext& context) { return import_chain(context, "Min"); }

Expected<void> import_mean(ImportContext& context) {
  auto sum = chain(context, "Add");
  if (!sum) return tl::make_unexpected(sum.error());
  const double count = static_cast<double>(context.num_inputs());
  context.set_output(0, context.emit("Div", {*sum, context.constant(context.type(*sum).dtype, count)}));
  return {};
}

Expected<void> import_mod(ImportContext& context) {
  const int64_t fmod = context.attrs().i("fmod", 0);
  const ValueId a = context.input(0);
  if (fmod == 0 && ir::is_float(context.type(a).dtype)) return user_error("a float Mod needs fmod = 1");
  context.set_output(0, context.emit("Mod", {a, context.input(1)}, {{"fmod", fmod}}));
  return {};
}

// By selection, not as Max and Min: at a bound the whole gradient passes, and NaN stays NaN.
Expected<void> import_clip(ImportContext& context) {
  ValueId x = context.input(0);
  // Attributes until opset 10, inputs from then on.
  const auto bound = [&](size_t i, const char* name) {
    if (context.has_input(i)) return context.input(i);
    return context.attrs().has(name) ? context.constant(context.type(x).dtype, context.attrs().f(name)) : ValueId();
  };
  if (const ValueId low = bound(1, "min"); low.valid()) {
    x = context.emit("Where", {context.emit("Less", {x, low}), low, x});
  }
  if (const ValueId high = bound(2, "max"); high.valid()) {
    x = context.emit("Where", {context.emit("Greater", {x, high}), high, x});
  }
  context.set_output(0, x);
  return {};
}

ImportRule rule(const char* op_type, ImportFn import) { return {op_type, "", kFirstOpset, kLastOpset, import}; }

OpDef comparison(const char* name) {
  return {name, infer_comparison, nullptr, kIntegerResult, flops_per_element, {same_name_rule(name)}};
}
OpDef logical(const char* name) {
  return {name, infer_logical, nullptr, kIntegerResult, flops_per_element, {same_name_rule(name)}};
}

}  // namespace

const OpDef kAddOp = {"Add", infer_arithmetic, add_gradient, nullptr, flops_per_element,
                      {same_name_rule("Add"), rule("Sum", import_sum), rule("Mean", import_mean)}};
const OpDef kAndOp = logical("And");
const OpDef kDivOp = {"Div", infer_arithmetic, div_gradient, nullptr, flops_per_element, {same_name_rule("Div")}};
const OpDef kEqualOp = comparison("Equal");
const OpDef kGreaterOp = comparison("Greater");
const OpDef kGreaterOrEqualOp = comparison("GreaterOrEqual");
const OpDef kLessOp = comparison("Less");
const OpDef kLessOrEqualOp = comparison("LessOrEqual");
const OpDef kMaxOp = {"Max", infer_arithmetic, max_gradient, nullptr, flops_per_element,
                      {rule("Max", import_max), rule("Clip", import_clip)}};
const OpDef kMinOp = {"Min", infer_arithmetic, min_gradient, nullptr, flops_per_element, {rule("Min", import_min)}};
const OpDef kModOp = {"Mod", infer_arithmetic, mod_gradient, nullptr, flops_per_element, {rule("Mod", import_mod)}};
const OpDef kMulOp = {"Mul", infer_arithmetic, mul_gradient, nullptr, flops_per_element, {same_name_rule("Mul")}};
const OpDef kOrOp = logical("Or");
const OpDef kPowOp = {"Pow", infer_pow, pow_gradient, nullptr, flops_per_element, {same_name_rule("Pow")}};
const OpDef kSubOp = {"Sub", infer_arithmetic, sub_gradient, nullptr, flops_per_element, {same_name_rule("Sub")}};

}  // namespace piper::ops
