// Functions of one tensor, element by element.
//
// The gradient of most is one fused op: UnaryGrad(saved, dy) {fn}, where `saved` is the output for Exp, Reciprocal, Relu,
// Sigmoid, Sqrt and Tanh (their derivative is cheap from it, and whoever reads the output keeps it anyway), else the
// input. vec::grad_reads_output says the same on the kernel's side; a test holds them together.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

Expected<std::vector<TensorType>> infer_float(const InferInput& in) {
  if (!ir::is_float(in.type(0).dtype)) {
    return support::user_error("its input is " + ir::to_string(in.type(0)) + ", but must be a float tensor");
  }
  return infer_same_type(in);
}

Expected<std::vector<TensorType>> infer_is_nan(const InferInput& in) {
  return std::vector<TensorType>{{DType::kBool, in.type(0).shape}};
}

Expected<std::vector<TensorType>> infer_not(const InferInput& in) {
  if (in.type(0).dtype != DType::kBool) return support::user_error("its input is not bool");
  return infer_same_type(in);
}

void fused_gradient(GradientBuilder& b, ValueId saved) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  Attrs attrs{{"fn", b.op().kind}};
  if (b.op().attrs.has("approximate")) attrs.set("approximate", b.op().attrs.s("approximate"));
  b.add_grad(0, b.emit("UnaryGrad", {saved, b.grad(0)}, attrs));
}
void from_input(GradientBuilder& b) { fused_gradient(b, b.input(0)); }
void from_output(GradientBuilder& b) { fused_gradient(b, b.output(0)); }
// The derivative of a rounding is 0 where it has one. Zeros are passed on, as PyTorch does, so that a parameter behind one
// still is one that trains (and decays).
void zeros(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  b.add_grad(0, filled(b, b.type(b.input(0)), 0));
}
void negate(GradientBuilder& b) {
  if (b.grad(0).valid() && b.wants(0)) b.add_grad(0, b.emit("Neg", {b.grad(0)}));
}

Expected<void> import_gelu(ImportContext& context) {
  const std::string form = context.attrs().s("approximate", "none");
  if (form != "none" && form != "tanh") return support::user_error("Gelu has no approximation `" + form + "`");
  context.set_output(0, context.emit("Gelu", {context.input(0)}, {{"approximate", form}}));
  return {};
}

// x * sigmoid(alpha x); alpha 1 is Silu.
Expected<void> import_swish(ImportContext& context) {
  const double alpha = context.attrs().f("alpha", 1);
  const ValueId x = context.input(0);
  if (alpha == 1) {
    context.set_output(0, context.emit("Silu", {x}));
    return {};
  }
  const ValueId inner = context.emit("Mul", {x, context.constant(context.type(x).dtype, alpha)});
  context.set_output(0, context.emit("Mul", {x, context.emit("Sigmoid", {inner})}));
  return {};
}

Expected<std::vector<TensorType>> infer_grad(const InferInput& in) {
  if (in.type(0) != in.type(1)) return support::user_error("the saved value and the gradient differ in type");
  return infer_same_type(in);
}

}  // namespace

const OpDef kAbsOp = {"Abs", infer_same_type, from_input, nullptr, flops_per_element, {same_name_rule("Abs")}};
const OpDef kCeilOp = {"Ceil", infer_float, zeros, nullptr, flops_per_element, {same_name_rule("Ceil")}};
const OpDef kCosOp = {"Cos", infer_float, from_input, nullptr, flops_per_element, {same_name_rule("Cos")}};
const OpDef kErfOp = {"Erf", infer_float, from_input, nullptr, flops_per_element, {same_name_rule("Erf")}};
const OpDef kExpOp = {"Exp", infer_float, from_output, nullptr, flops_per_element, {same_name_rule("Exp")}};
const OpDef kFloorOp = {"Floor", infer_float, zeros, nullptr, flops_per_element, {same_name_rule("Floor")}};
const OpDef kGeluOp = {"Gelu", infer_float, from_input, nullptr, flops_per_element,
                       {{"Gelu", "", kFirstOpset, kLastOpset, import_gelu}}};
const OpDef kIsNaNOp = {"IsNaN", infer_is_nan, nullptr, kIntegerResult, flops_per_element, {same_name_rule("IsNaN")}};
const OpDef kLogOp = {"Log", infer_float, from_input, nullptr, flops_per_element, {same_name_rule("Log")}};
const OpDef kNegOp = {"Neg", infer_same_type, negate, nullptr, flops_per_element, {same_name_rule("Neg")}};
const OpDef kNotOp = {"Not", infer_not, nullptr, kIntegerResult, flops_per_element, {same_name_rule("Not")}};
const OpDef kReciprocalOp = {"Reciprocal", infer_float, from_output, nullptr, flops_per_element,
                             {same_name_rule("Reciprocal")}};
const OpDef kReluOp = {"Relu", infer_same_type, from_output, nullptr, flops_per_element, {same_name_rule("Relu")}};
const OpDef kRoundOp = {"Round", infer_float, zeros, nullptr, flops_per_element, {same_name_rule("Round")}};
const OpDef kSigmoidOp = {"Sigmoid", infer_float, from_output, nullptr, flops_per_element,
                          {same_name_rule("Sigmoid")}};
const OpDef kSiluOp = {"Silu", infer_float, from_input, nullptr, flops_per_element,
                       {{"Swish", "", kFirstOpset, kLastOpset, import_swish}}};
const OpDef kSinOp = {"Sin", infer_float, from_input, nullptr, flops_per_element, {same_name_rule("Sin")}};
const OpDef kSoftplusOp = {"Softplus", infer_float, from_input, nullptr, flops_per_element,
                           {same_name_rule("Softplus")}};
const OpDef kSqrtOp = {"Sqrt", infer_float, from_output, nullptr, flops_per_element, {same_name_rule("Sqrt")}};
const OpDef kTanhOp = {"Tanh", infer_float, from_output, nullptr, flops_per_element, {same_name_rule("Tanh")}};
const OpDef kUnaryGradOp = {"UnaryGrad", infer_grad, nullptr, kBackwardOnly, flops_per_element, {}};

}  // namespace piper::ops
