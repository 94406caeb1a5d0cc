// Mixture of experts in which every expert has a fixed number of rows, [E, ..., capacity, width],
// as `piper::MoEDispatch` gives them, or [..., E, capacity, width] as products with masks do: many
// are zeros that nothing reads. The products with stacked weights become GroupedLinear over the
// rows that there are, all in the order of MoERoute's packed slots.

#include <algorithm>

#include "frontend/onnx/canonical/canonical.h"
#include "frontend/onnx/canonical/row_function.h"

namespace piper::frontend {

using ir::Dim;
using ir::Op;
using ir::Shape;
using ir::ValueId;

namespace {

// weights[E, ., .] as they are read by a product; `swapped`: stored [E, out, in].
struct Stack {
  ValueId weights;
  bool swapped = false;
};

std::optional<Stack> stack_of(const Rewriter& r, ValueId value, int64_t experts) {
  Stack stack{value, false};
  for (;;) {
    const Shape& shape = r.shape(stack.weights);
    const Op* transpose = r.producer(stack.weights, "Transpose");
    const Op* reshape = r.producer(stack.weights, "Reshape");
    if (transpose != nullptr && swaps_last_two(*transpose, shape.size())) {
      stack.swapped = !stack.swapped;
      stack.weights = transpose->inputs[0];
      continue;
    }
    if (reshape == nullptr) break;
    const Shape& from = r.shape(reshape->inputs[0]);
    if (from.size() < 3 || !std::equal(from.end() - 2, from.end(), shape.end() - 2)) break;
    stack.weights = reshape->inputs[0];
  }
  const Shape& shape = r.shape(stack.weights);
  if (shape.size() != 3 || shape[0] != Dim(experts)) return std::nullopt;
  return stack;
}

class PaddedFunction final : public RowFunction {
 public:
  PaddedFunction(Rewriter& r, const Op& route, Dim before, Dim after, int64_t capacity)
      : RowFunction(r, before, after),
        route_(route),
        after_(after),
        capacity_(capacity),
        experts_(route.attrs.i("experts")),
        experts_first_(starts_with_experts()) {}

  ValueId slot() { return packed(0); }

 private:
  // A product by a stack, with a bias or without.
  struct Product {
    const Op* matmul;
    Stack stack;
    ValueId bias;
  };

  std::optional<Product> product(const Op& op) const {
    const Rewriter& r = rewriter();
    if (op.kind == "Add") {
      for (size_t i = 0; i < 2; i++) {
        const Op* matmul = r.producer(op.inputs[i], "MatMul");
        if (matmul == nullptr || r.shape(op.inputs[i]) != r.shape(op.outputs[0])) continue;
        auto made = product(*matmul);
        if (!made || !is_bias(r.shape(op.inputs[1 - i]), r.shape(op.outputs[0]))) continue;
        made->bias = op.inputs[1 - i];
        return made;
      }
      return std::nullopt;
    }
    if (op.kind != "MatMul" || op.attrs.i("trans_a") != 0 || op.attrs.i("trans_b") != 0 ||
        op.attrs.f("alpha", 1) != 1)
      return std::nullopt;
    const Shape& x = r.shape(op.inputs[0]);
    if (x.size() < 3 || elements(Shape(x.begin(), x.end() - 1)) != rows_before())
      return std::nullopt;
    if (!has_experts_at(r.shape(op.inputs[1]), x, 2)) return std::nullopt;
    auto stack = stack_of(r, op.inputs[1], experts_);
    return stack ? std::optional(Product{&op, *stack, ValueId()}) : std::nullopt;
  }

  bool is_bias(const Shape& bias, const Shape& y) const {
    return bias.back() == y.back() && has_experts_at(bias, y, 1);
  }

  // Whether a shape that is broadcast to `like` has the experts in the dim where rows have them,
  // and 1 elsewhere, but for `inner` dims at the end.
  bool has_experts_at(const Shape& shape, const Shape& like, size_t inner) const {
    const size_t at = experts_first_ ? 0 : like.size() - 3;
    if (shape.size() > like.size() || like.size() < 3 || like[at] != Dim(experts_)) return false;
    if (!experts_first_ && like[at + 1] != rows_of_expert()) return false;
    const size_t missing = like.size() - shape.size();
    if (missing > at) return false;
    for (size_t i = missing; i < like.size() - inner; i++) {
      if (shape[i - missing] != Dim(i == at ? experts_ : 1)) return false;
    }
    return true;
  }

  bool starts_with_experts() const { return route_.attrs.i("padded") == 1; }
  Dim rows_of_expert() const { return capacity_; }

  // From [groups, E, capacity, width] to [E, groups, capacity, width] or back.
  bool swaps_groups(const Op& op) const {
    const Shape& y = rewriter().shape(op.outputs[0]);
    const std::vector<int64_t> perm{1, 0, 2, 3};
    return op.kind == "Transpose" && op.attrs.ints("perm") == perm && y[2] == rows_of_expert() &&
           y[experts_first_ ? 0 : 1] == Dim(experts_);
  }

  bool is_leaf(const Op& op) const override {
    return op.kind == "MoEDispatch" || swaps_groups(op) || product(op).has_value();
  }
  bool leaf_fits(const Op& op) const override {
    if (op.kind == "MoEDispatch")
      return experts_first_ == starts_with_experts() && is_route(op.inputs[1]);
    if (!swaps_groups(op)) return fits(product(op)->matmul->inputs[0]);
    experts_first_ = !experts_first_;
    const bool fit = fits(op.inputs[0]);
    experts_first_ = !experts_first_;
    return fit;
  }

  // The same route, or one that says the same.
  bool is_route(ValueId slot) const {
    const Op* other = rewriter().producer(slot, "MoERoute");
    return other != nullptr && other->attrs == route_.attrs &&
           rewriter().shape(other->inputs[0]) == rewriter().shape(route_.inputs[0]) &&
           through_reshapes(rewriter(), other->inputs[0]) ==
               through_reshapes(rewriter(), route_.inputs[0]);
  }

  ValueId leaf(const Op& op) override {
    Rewriter& r = rewriter();
    if (op.kind == "MoEDispatch") {
      std::vector<ValueId> inputs = op.inputs;
      inputs[1] = slot();
      return r.emit("MoEDispatch", inputs, {{"shape", Shape{after_, r.shape(op.outputs[0])[1]}}},
                    &op);
    }
    if (swaps_groups(op)) {
      experts_first_ = !experts_first_;
      const ValueId rows = build(op.inputs[0]);
      experts_first_ = !experts_first_;
      return rows;
    }
    const Product made = *product(op);
    std::vector<ValueId> inputs{build(made.matmul->inputs[0]), made.stack.weights, packed(1)};
    if (made.bias.valid())
      inputs.push_back(reshaped(r, made.bias, {experts_, r.shape(made.bias).back()}));
    return r.emit("GroupedLinear", inputs, {{"trans_w", int64_t{made.stack.swapped}}}, made.matmul);
  }

  // Output i of the route with packed slots.
  ValueId packed(int32_t i) {
    Rewriter& r = rewriter();
    const int32_t key = -1 - static_cast<int32_t>(route_.outputs[0].index());
    const int32_t counts = -1 - static_cast<int32_t>(route_.outputs[1].index());
    if (!r.memo().count(key)) {
      ir::Attrs attrs = route_.attrs;
      attrs.set("padded", int64_t{0});
      attrs.set("capacity", capacity_);
      const auto made = r.emit_all("MoERoute", route_.inputs, attrs, &route_);
      r.memo()[key] = made[0];
      r.memo()[counts] = made[1];
    }
    return r.memo().at(i == 0 ? key : counts);
  }

  const Op& route_;
  Dim after_;
  int64_t capacity_, experts_;
  mutable bool experts_first_;  // where the value has its experts that is looked at
};

// The capacity that takes the same pairs without padding. Nothing when that is not known.
std::optional<int64_t> packed_capacity(const Rewriter& r, const Op& route) {
  if (route.attrs.i("capacity") > 0) return route.attrs.i("capacity");
  // As many as there are tokens: enough when no token chooses an expert twice.
  const ValueId index = route.inputs[0];
  const Shape& shape = r.shape(index);
  if (shape.back() == Dim(1)) return 0;
  const ValueId base = through_reshapes(r, index);
  const Op* top = r.producer(base);
  if (top != nullptr && top->kind == "TopK" && top->outputs[1] == base &&
      r.shape(base).back() == shape.back() &&
      top->attrs.i("axis") + 1 == static_cast<int64_t>(r.shape(base).size()))
    return 0;
  const Dim tokens = shape[shape.size() - 2];
  return tokens.is_static() && tokens.constant > 0 ? std::optional(tokens.constant) : std::nullopt;
}

}  // namespace

bool match_padded_experts(Rewriter& r, const Op& op) {
  if (op.kind != "MoECombine") return false;
  const Op* route = r.producer(op.inputs[1], "MoERoute");
  if (route == nullptr || route->attrs.i("padded") == 0) return false;
  const auto capacity = packed_capacity(r, *route);
  if (!capacity) return false;
  PaddedFunction rows(r, *route, r.shape(op.inputs[0])[0], elements(r.shape(route->inputs[0])),
                      *capacity);
  if (!rows.fits(op.inputs[0])) return false;
  std::vector<ValueId> inputs = op.inputs;
  inputs[0] = rows.build(op.inputs[0]);
  inputs[1] = rows.slot();
  return r.replace(op, "MoECombine", inputs, {});
}

}  // namespace piper::frontend
