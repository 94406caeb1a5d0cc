// Gelu (erf and tanh forms), Silu and SwiGlu.

#include "frontend/onnx/canonical/canonical.h"

namespace piper::frontend {

using ir::Op;
using ir::ValueId;

namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;  // 1 / sqrt(2)
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

// The other operand of an Add with the number 1.
ValueId plus_one(const Rewriter& r, ValueId sum) {
  const Op* add = r.producer(sum, "Add");
  if (add == nullptr) return ValueId();
  if (r.is_scalar(add->inputs[0], 1)) return add->inputs[1];
  if (r.is_scalar(add->inputs[1], 1)) return add->inputs[0];
  return ValueId();
}

// Whether value is scale * x^power, as a Pow or as a product.
bool is_power(const Rewriter& r, ValueId value, ValueId x, int power, double scale) {
  const Product product = flatten_product(r, value);
  if (!near(product.scale, scale)) return false;
  int found = 0;
  for (ValueId factor : product.factors) {
    const Op* pow = r.producer(factor, "Pow");
    if (factor == x) {
      found++;
    } else if (pow != nullptr && pow->inputs[0] == x) {
      auto exponent = r.scalar(pow->inputs[1]);
      if (!exponent || *exponent != static_cast<int>(*exponent)) return false;
      found += static_cast<int>(*exponent);
    } else if (const Op* square = r.producer(factor, "Mul");
               square != nullptr && square->inputs[0] == x && square->inputs[1] == x) {
      found += 2;
    } else {
      return false;
    }
  }
  return found == power;
}

bool is_erf_argument(const Rewriter& r, ValueId value, ValueId x) {
  const Product product = flatten_product(r, value);
  return product.factors == std::vector<ValueId>{x} && near(product.scale, kSqrtHalf);
}

// sqrt(2/pi) (x + 0.044715 x^3), or sqrt(2/pi) x (1 + 0.044715 x^2).
bool is_tanh_argument(const Rewriter& r, ValueId value, ValueId x) {
  const Product product = flatten_product(r, value);
  if (!near(product.scale, kSqrtTwoOverPi)) return false;
  if (product.factors.size() == 1) {
    const Op* add = r.producer(product.factors[0], "Add");
    if (add == nullptr) return false;
    for (size_t i = 0; i < 2; i++) {
      if (add->inputs[i] == x && is_power(r, add->inputs[1 - i], x, 3, kCubic)) return true;
    }
    return false;
  }
  if (product.factors.size() != 2) return false;
  for (size_t i = 0; i < 2; i++) {
    const ValueId rest = plus_one(r, product.factors[1 - i]);
    if (product.factors[i] == x && rest.valid() && is_power(r, rest, x, 2, kCubic)) return true;
  }
  return false;
}

}  // namespace

bool match_gelu(Rewriter& r, const Op& op) {
  if (op.kind != "Mul" && op.kind != "Div") return false;
  const Product product = flatten_product(r, op.outputs[0]);
  if (product.factors.size() != 2 || !near(product.scale, 0.5)) return false;
  for (size_t i = 0; i < 2; i++) {
    const ValueId x = product.factors[i];
    const ValueId curve = plus_one(r, product.factors[1 - i]);
    if (!curve.valid()) continue;
    if (const Op* erf = r.producer(curve, "Erf");
        erf != nullptr && is_erf_argument(r, erf->inputs[0], x)) {
      return r.replace(op, "Gelu", {x}, {{"approximate", std::string("none")}});
    }
    if (const Op* tanh = r.producer(curve, "Tanh");
        tanh != nullptr && is_tanh_argument(r, tanh->inputs[0], x)) {
      return r.replace(op, "Gelu", {x}, {{"approximate", std::string("tanh")}});
    }
  }
  return false;
}

bool match_silu(Rewriter& r, const Op& op) {
  if (op.kind != "Mul") return false;
  for (size_t i = 0; i < 2; i++) {
    const Op* sigmoid = r.producer(op.inputs[1 - i], "Sigmoid");
    if (sigmoid != nullptr && sigmoid->inputs[0] == op.inputs[i])
      return r.replace(op, "Silu", {op.inputs[i]}, {});
  }
  return false;
}

bool match_swiglu(Rewriter& r, const Op& op) {
  if (op.kind != "Mul") return false;
  for (size_t i = 0; i < 2; i++) {
    const Op* silu = r.producer(op.inputs[i], "Silu");
    if (silu == nullptr || !r.single_use(op.inputs[i])) continue;
    return r.replace(op, "SwiGlu", {silu->inputs[0], op.inputs[1 - i]}, {});
  }
  return false;
}

}  // namespace piper::frontend
