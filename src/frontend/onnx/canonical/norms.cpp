// LayerNorm and RmsNorm written out as means, squares and roots.

#include "frontend/onnx/canonical/canonical.h"

namespace piper::frontend {

using ir::Op;
using ir::ValueId;

namespace {

// value = numerator / sqrt(mean(squared * squared) + eps)
struct Normalised {
  ValueId numerator;
  ValueId squared;
  double eps = 0;
  int64_t dims = 0;  // how many trailing dims the mean is over
};

// The number of trailing dims that a ReduceMean with kept dims goes over; 0 when it is something
// else.
int64_t trailing_mean(const Rewriter& r, const Op* mean) {
  if (mean == nullptr || mean->attrs.i("keepdims", 1) == 0) return 0;
  const std::vector<int64_t> axes = mean->attrs.ints("axes");
  const int64_t rank = static_cast<int64_t>(r.shape(mean->inputs[0]).size());
  const int64_t n = static_cast<int64_t>(axes.size());
  for (int64_t i = 0; i < n; i++) {
    const int64_t axis = axes[static_cast<size_t>(i)];
    if ((axis < 0 ? axis + rank : axis) != rank - n + i) return 0;
  }
  return n;
}

// sqrt(s), given where it divides: the value s.
ValueId under_root(const Rewriter& r, ValueId value) {
  if (const Op* sqrt = r.producer(value, "Sqrt")) return sqrt->inputs[0];
  const Op* pow = r.producer(value, "Pow");
  return pow != nullptr && r.is_scalar(pow->inputs[1], 0.5) ? pow->inputs[0] : ValueId();
}

// 1 / sqrt(s): the value s.
ValueId under_reciprocal_root(const Rewriter& r, ValueId value) {
  if (const Op* reciprocal = r.producer(value, "Reciprocal"))
    return under_root(r, reciprocal->inputs[0]);
  if (const Op* div = r.producer(value, "Div"); div != nullptr && r.is_scalar(div->inputs[0], 1)) {
    return under_root(r, div->inputs[1]);
  }
  const Op* pow = r.producer(value, "Pow");
  return pow != nullptr && r.is_scalar(pow->inputs[1], -0.5) ? pow->inputs[0] : ValueId();
}

ValueId squared(const Rewriter& r, ValueId value) {
  if (const Op* pow = r.producer(value, "Pow")) {
    return r.is_scalar(pow->inputs[1], 2) ? pow->inputs[0] : ValueId();
  }
  const Op* mul = r.producer(value, "Mul");
  return mul != nullptr && mul->inputs[0] == mul->inputs[1] ? mul->inputs[0] : ValueId();
}

std::optional<Normalised> normalised_by(const Rewriter& r, ValueId numerator, ValueId under) {
  const Op* add = r.producer(under, "Add");
  if (add == nullptr) return std::nullopt;
  for (size_t i = 0; i < 2; i++) {
    const Op* mean = r.producer(add->inputs[i], "ReduceMean");
    auto eps = r.scalar(add->inputs[1 - i]);
    const int64_t dims = trailing_mean(r, mean);
    if (dims == 0 || !eps) continue;
    const ValueId base = squared(r, mean->inputs[0]);
    if (base.valid()) return Normalised{numerator, base, *eps, dims};
  }
  return std::nullopt;
}

std::optional<Normalised> normalised(const Rewriter& r, ValueId value) {
  if (const Op* div = r.producer(value, "Div")) {
    const ValueId under = under_root(r, div->inputs[1]);
    return under.valid() ? normalised_by(r, div->inputs[0], under) : std::nullopt;
  }
  const Op* mul = r.producer(value, "Mul");
  for (size_t i = 0; mul != nullptr && i < 2; i++) {
    const ValueId under = under_reciprocal_root(r, mul->inputs[1 - i]);
    if (under.valid()) return normalised_by(r, mul->inputs[i], under);
  }
  return std::nullopt;
}

// x, when value = x - mean(x) over the trailing dims.
ValueId centred(const Rewriter& r, ValueId value, int64_t dims) {
  const Op* sub = r.producer(value, "Sub");
  const Op* mean = sub != nullptr ? r.producer(sub->inputs[1], "ReduceMean") : nullptr;
  if (mean == nullptr || mean->inputs[0] != sub->inputs[0] || trailing_mean(r, mean) != dims)
    return ValueId();
  return sub->inputs[0];
}

bool fits_scale(const Rewriter& r, ValueId scale, ValueId x, int64_t dims) {
  const ir::Shape& shape = r.shape(x);
  return r.type(scale).dtype == r.type(x).dtype &&
         r.shape(scale) == ir::Shape(shape.end() - dims, shape.end());
}

}  // namespace

bool match_layer_norm(Rewriter& r, const Op& op) {
  if (op.kind != "Mul") return false;
  for (size_t i = 0; i < 2; i++) {
    auto n = normalised(r, op.inputs[i]);
    if (!n) continue;
    const ValueId x = centred(r, n->numerator, n->dims);
    if (!x.valid() || centred(r, n->squared, n->dims) != x ||
        !fits_scale(r, op.inputs[1 - i], x, n->dims))
      continue;
    return r.replace(op, "LayerNorm", {x, op.inputs[1 - i], ValueId()},
                     {{"axis", -n->dims}, {"eps", n->eps}});
  }
  return false;
}

bool match_layer_norm_bias(Rewriter& r, const Op& op) {
  if (op.kind != "Add") return false;
  for (size_t i = 0; i < 2; i++) {
    const Op* norm = r.producer(op.inputs[i], "LayerNorm");
    if (norm == nullptr || !r.single_use(op.inputs[i])) continue;
    if (norm->inputs.size() > 2 && norm->inputs[2].valid()) continue;
    if (r.type(op.inputs[1 - i]) != r.type(norm->inputs[1])) continue;
    return r.replace(op, "LayerNorm", {norm->inputs[0], norm->inputs[1], op.inputs[1 - i]},
                     norm->attrs, norm);
  }
  return false;
}

bool match_rms_norm(Rewriter& r, const Op& op) {
  if (op.kind != "Mul") return false;
  for (size_t i = 0; i < 2; i++) {
    auto n = normalised(r, op.inputs[i]);
    if (!n || n->numerator != n->squared || !fits_scale(r, op.inputs[1 - i], n->numerator, n->dims))
      continue;
    return r.replace(op, "RmsNorm", {n->numerator, op.inputs[1 - i]},
                     {{"axis", -n->dims}, {"eps", n->eps}});
  }
  return false;
}

}  // namespace piper::frontend
