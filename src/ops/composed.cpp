// ONNX operators that are made of canonical ops when they are imported: each is exact, and its gradient follows from its
// parts. Losses, activations besides the fused ones of unary/, group and instance normalisation, OneHot.

#include "ops/composed.h"

#include <algorithm>

#include "ops/einsum.h"
#include "ops/import_helpers.h"
#include "ops/loss_import.h"

namespace piper::ops {

namespace {

using support::user_error;

// Ops on values of one type, with numbers where they are needed.
class Maker {
 public:
  explicit Maker(ImportContext& context) : c(context), x(context.input(0)), dtype(context.type(x).dtype) {}

  ValueId number(double value) { return c.constant(dtype, value); }
  ValueId make(const char* kind, ValueId a) { return c.emit(kind, {a}); }
  ValueId make(const char* kind, ValueId a, ValueId b) { return c.emit(kind, {a, b}); }
  ValueId make(const char* kind, ValueId a, double b) { return make(kind, a, number(b)); }
  ValueId where(ValueId condition, ValueId a, ValueId b) { return c.emit("Where", {condition, a, b}); }
  ValueId reshape(ValueId a, Shape shape) { return c.emit("Reshape", {a}, {{"shape", std::move(shape)}}); }
  double attr(const char* name, double otherwise) { return c.attrs().f(name, otherwise); }
  Expected<void> done(ValueId result) {
    c.set_output(0, result);
    return {};
  }

  ImportContext& c;
  ValueId x;
  DType dtype;
};

// e^x - 1 for x up to 0. What is above 0 is not chosen, and must not overflow: 0 times infinity is no gradient.
ValueId exp_minus_one(Maker& m, ValueId x) { return m.make("Sub", m.make("Exp", m.make("Min", x, 0.0)), 1.0); }

ValueId elu(Maker& m, double alpha) {
  return m.where(m.make("Greater", m.x, 0.0), m.x, m.make("Mul", exp_minus_one(m, m.x), alpha));
}

Expected<void> import_elu(ImportContext& c) {
  Maker m(c);
  return m.done(elu(m, m.attr("alpha", 1)));
}

Expected<void> import_selu(ImportContext& c) {
  Maker m(c);
  const double alpha = m.attr("alpha", 1.67326319217681884765625), gamma = m.attr("gamma", 1.05070102214813232421875);
  return m.done(m.make("Mul", elu(m, alpha), gamma));
}

// max(0, x) + min(0, alpha (e^(x / alpha) - 1))
Expected<void> import_celu(ImportContext& c) {
  Maker m(c);
  const double alpha = m.attr("alpha", 1);
  const ValueId below = m.make("Mul", exp_minus_one(m, m.make("Div", m.x, alpha)), alpha);
  return m.done(m.where(m.make("Greater", m.x, 0.0), m.x, below));
}

ValueId leaky(Maker& m, ValueId slope) { return m.where(m.make("Less", m.x, 0.0), m.make("Mul", m.x, slope), m.x); }

Expected<void> import_leaky_relu(ImportContext& c) {
  Maker m(c);
  return m.done(leaky(m, m.number(m.attr("alpha", 0.01))));
}

Expected<void> import_prelu(ImportContext& c) {
  Maker m(c);
  return m.done(leaky(m, c.input(1)));
}

Expected<void> import_thresholded_relu(ImportContext& c) {
  Maker m(c);
  return m.done(m.where(m.make("Greater", m.x, m.attr("alpha", 1)), m.x, m.number(0)));
}

// x + bias below -lambd, x - bias above lambd, else 0.
Expected<void> import_shrink(ImportContext& c) {
  Maker m(c);
  const double lambd = m.attr("lambd", 0.5), bias = m.attr("bias", 0);
  const ValueId above = m.where(m.make("Greater", m.x, lambd), m.make("Sub", m.x, bias), m.number(0));
  return m.done(m.where(m.make("Less", m.x, -lambd), m.make("Add", m.x, bias), above));
}

ValueId hard_sigmoid(Maker& m, double alpha, double beta) {
  const ValueId line = m.make("Add", m.make("Mul", m.x, alpha), beta);
  return m.make("Min", m.make("Max", line, 0.0), 1.0);
}

Expected<void> import_hard_sigmoid(ImportContext& c) {
  Maker m(c);
  return m.done(hard_sigmoid(m, m.attr("alpha", 0.2), m.attr("beta", 0.5)));
}

Expected<void> import_hard_swish(ImportContext& c) {
  Maker m(c);
  return m.done(m.make("Mul", m.x, hard_sigmoid(m, 1.0 / 6, 0.5)));
}

Expected<void> import_mish(ImportContext& c) {
  Maker m(c);
  return m.done(m.make("Mul", m.x, m.make("Tanh", m.make("Softplus", m.x))));
}

Expected<void> import_softsign(ImportContext& c) {
  Maker m(c);
  return m.done(m.make("Div", m.x, m.make("Add", m.make("Abs", m.x), 1.0)));
}

Expected<void> import_tan(ImportContext& c) {
  Maker m(c);
  return m.done(m.make("Div", m.make("Sin", m.x), m.make("Cos", m.x)));
}

ValueId hyperbolic(Maker& m, const char* combine) {
  return m.make("Mul", m.make(combine, m.make("Exp", m.x), m.make("Exp", m.make("Neg", m.x))), 0.5);
}
Expected<void> import_cosh(ImportContext& c) {
  Maker m(c);
  return m.done(hyperbolic(m, "Add"));
}
Expected<void> import_sinh(ImportContext& c) {
  Maker m(c);
  return m.done(hyperbolic(m, "Sub"));
}

// (x > 0) - (x < 0)
Expected<void> import_sign(ImportContext& c) {
  Maker m(c);
  const auto as_number = [&](ValueId condition) { return c.emit("Cast", {condition}, {{"to", std::string(ir::dtype_name(m.dtype))}}); };
  return m.done(m.make("Sub", as_number(m.make("Greater", m.x, 0.0)), as_number(m.make("Less", m.x, 0.0))));
}

// One of the two, but not both.
Expected<void> import_xor(ImportContext& c) {
  Maker m(c);
  const ValueId b = c.input(1);
  return m.done(m.make("And", m.make("Or", m.x, b), m.make("Not", m.make("And", m.x, b))));
}

// ---- normalisation within a sample

// x [N, C, ...] in `groups` of channels, each normalised by its own mean and variance: [N, groups, rest].
Expected<ValueId> normalize_groups(Maker& m, int64_t groups) {
  const Shape shape = m.c.type(m.x).shape;
  if (shape.size() < 3 || !shape[1].is_static() || groups < 1 || shape[1].constant % groups != 0) {
    return user_error("its input " + ir::to_string(m.c.type(m.x)) + " has no channels that divide into " + std::to_string(groups) + " groups");
  }
  Dim rest = shape[1].constant / groups;
  for (size_t i = 2; i < shape.size(); i++) {
    auto product = multiply(rest, shape[i]);
    if (!product || !product->is_static()) return user_error("only the first dim of its input may depend on the batch size");
    rest = *product;
  }
  const std::string dtype(ir::dtype_name(m.dtype));
  const ValueId ones = m.c.emit("Fill", {}, {{"shape", Shape{rest}}, {"value", 1.0}, {"dtype", dtype}});
  const ValueId flat = m.reshape(m.x, {shape[0], groups, rest});
  return m.c.emit_all("LayerNorm", {flat, ones, ValueId()}, {{"axis", int64_t{-1}}, {"eps", m.attr("epsilon", 1e-5)}})[0];
}

// scale * y + bias, both of one value for each of dim 1.
ValueId affine(Maker& m, ValueId y, ValueId scale, ValueId bias) {
  Shape column(m.c.type(y).shape.size() - 1, 1);
  column[0] = m.c.type(y).shape[1];
  return m.make("Add", m.make("Mul", y, m.reshape(scale, column)), m.reshape(bias, column));
}

Expected<void> import_instance_norm(ImportContext& c) {
  Maker m(c);
  const Shape shape = c.type(m.x).shape;
  if (shape.size() < 3 || !shape[1].is_static()) return user_error("its input " + ir::to_string(c.type(m.x)) + " has no channels and places");
  auto y = normalize_groups(m, shape[1].constant);
  if (!y) return tl::make_unexpected(y.error());
  return m.done(affine(m, m.reshape(*y, shape), c.input(1), c.input(2)));
}

// Opset 18 has a scale for each group, 21 for each channel.
Expected<void> import_group_norm(ImportContext& c) {
  Maker m(c);
  const Shape shape = c.type(m.x).shape;
  auto y = normalize_groups(m, c.attrs().i("num_groups", 0));
  if (!y) return tl::make_unexpected(y.error());
  if (c.opset() < 21) return m.done(m.reshape(affine(m, *y, c.input(1), c.input(2)), shape));
  return m.done(affine(m, m.reshape(*y, shape), c.input(1), c.input(2)));
}

// ---- OneHot

// values[1] where an index equals the place along the new dim, values[0] elsewhere. Negative indices count from the end.
Expected<void> import_one_hot(ImportContext& c) {
  const std::optional<double> known = c.known_scalar(1);
  const std::vector<Dim>* ints = c.known_ints(1);
  if (!known && !(ints && ints->size() == 1 && (*ints)[0].is_static())) return user_error("its depth is not known when the model is read");
  const int64_t depth = known ? static_cast<int64_t>(*known) : (*ints)[0].constant;
  if (depth < 0) return user_error("its depth is " + std::to_string(depth));
  Shape shape = c.type(c.input(0)).shape;
  const int64_t axis = normalize_dim(c.attrs().i("axis", -1), shape.size() + 1);
  if (axis < 0) return user_error("axis is out of range for " + ir::to_string(c.type(c.input(0))));
  Maker m(c);
  ValueId index = m.x;
  if (m.dtype != DType::kI64) index = c.emit("Cast", {index}, {{"to", std::string("i64")}});
  const ValueId zero = c.constant(DType::kI64, 0), size = c.constant(DType::kI64, static_cast<double>(depth));
  index = m.where(m.make("Less", index, zero), m.make("Add", index, size), index);
  shape.insert(shape.begin() + axis, 1);
  Shape along(shape.size() - static_cast<size_t>(axis), 1);
  along[0] = depth;
  const ValueId places = c.emit("Range", {}, {{"start", 0.0}, {"limit", static_cast<double>(depth)}, {"delta", 1.0}, {"dtype", std::string("i64")}});
  const ValueId hit = m.make("Equal", m.reshape(index, shape), m.reshape(places, along));
  const auto value = [&](int64_t at) {
    const ValueId one = c.emit("Slice", {c.input(2)}, {{"starts", std::vector<int64_t>{at}}, {"steps", std::vector<int64_t>{1}}, {"shape", Shape{1}}});
    return m.reshape(one, {});
  };
  return m.done(m.where(hit, value(1), value(0)));
}

constexpr int kFirst = kFirstOpset, kLast = kLastOpset;

}  // namespace

const std::vector<ImportRule>& composed_rules() {
  static const std::vector<ImportRule> kRules = {
      {"Celu", "", kFirst, kLast, import_celu},
      {"Cosh", "", kFirst, kLast, import_cosh},
      {"Einsum", "", 12, kLast, import_einsum},
      {"Elu", "", kFirst, kLast, import_elu},
      {"GroupNormalization", "", 18, kLast, import_group_norm},
      {"HardSigmoid", "", kFirst, kLast, import_hard_sigmoid},
      {"HardSwish", "", 14, kLast, import_hard_swish},
      {"InstanceNormalization", "", kFirst, kLast, import_instance_norm},
      {"LeakyRelu", "", kFirst, kLast, import_leaky_relu},
      {"Mish", "", 18, kLast, import_mish},
      {"NegativeLogLikelihoodLoss", "", kFirst, kLast, import_negative_log_likelihood},
      {"OneHot", "", kFirst, kLast, import_one_hot},
      {"PRelu", "", kFirst, kLast, import_prelu},
      {"Selu", "", kFirst, kLast, import_selu},
      {"Shrink", "", kFirst, kLast, import_shrink},
      {"Sign", "", kFirst, kLast, import_sign},
      {"Sinh", "", kFirst, kLast, import_sinh},
      {"SoftmaxCrossEntropyLoss", "", kFirst, kLast, import_softmax_cross_entropy},
      {"Softsign", "", kFirst, kLast, import_softsign},
      {"Tan", "", kFirst, kLast, import_tan},
      {"ThresholdedRelu", "", kFirst, kLast, import_thresholded_relu},
      {"Xor", "", kFirst, kLast, import_xor},
  };
  return kRules;
}

}  // namespace piper::ops
