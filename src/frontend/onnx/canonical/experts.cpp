// Mixture of experts written as products with weights picked by expert: for every (token, choice)
// pair its expert's matrix, `bmm(W[expert], x)`. Such a product is a GroupedLinear between a way to
// the experts and back; the next matchers then remove the ways back and forth between two products,
// and let MoEDispatch and MoECombine do what the graph does to repeat tokens, weigh and sum them.
// A matcher that does not fit leaves a graph that computes the same.

#include <algorithm>

#include "frontend/onnx/canonical/canonical.h"
#include "frontend/onnx/canonical/row_function.h"

namespace piper::frontend {

using ir::Dim;
using ir::Op;
using ir::Shape;
using ir::ValueId;

namespace {

// Whether all elements are in [0, count): places along a dim of at most that size, such numbers, or
// one or the other of them.
bool is_index_below(const Rewriter& r, ValueId value, int64_t count) {
  const ir::DType dtype = r.type(value).dtype;
  if (dtype != ir::DType::kI64 && dtype != ir::DType::kI32) return false;
  if (const auto number = r.scalar(value))
    return *number >= 0 && *number < static_cast<double>(count);
  const Op* op = r.producer(value);
  if (op == nullptr) return false;
  for (const char* kind : {"Reshape", "Cast", "Expand", "Transpose", "Slice", "Identity"}) {
    if (op->kind == kind) return is_index_below(r, op->inputs[0], count);
  }
  if (op->kind == "Where" || op->kind == "Min" || op->kind == "Max") {
    const size_t first = op->kind == "Where" ? 1 : 0;
    return is_index_below(r, op->inputs[first], count) &&
           is_index_below(r, op->inputs[first + 1], count);
  }
  if (op->kind == "ArgMax" || (op->kind == "TopK" && op->outputs[1] == value)) {
    const Dim along = r.shape(op->inputs[0])[static_cast<size_t>(op->attrs.i("axis"))];
    return along.is_static() && along.constant <= count;
  }
  return false;
}

// weights[E, ., .] picked by expert: shape of `experts` + a matrix, the other way round if swapped.
struct Picked {
  ValueId weights, experts;
  bool swapped = false;
};

std::optional<Picked> picked_of(const Rewriter& r, ValueId value) {
  Picked picked;
  auto through_swap = [&] {
    const Op* transpose = r.producer(value, "Transpose");
    if (transpose == nullptr) return;
    if (!swaps_last_two(*transpose, r.shape(value).size())) return;
    picked.swapped = !picked.swapped;
    value = transpose->inputs[0];
  };
  through_swap();
  const Op* gather = r.producer(value, "Gather");
  if (gather == nullptr || gather->attrs.i("axis") != 0) return std::nullopt;
  picked.experts = gather->inputs[1];
  value = gather->inputs[0];
  through_swap();
  picked.weights = value;
  const Shape& shape = r.shape(value);
  if (shape.size() != 3 || ir::sample_dim(shape) >= 0) return std::nullopt;
  if (!is_index_below(r, picked.experts, shape[0].constant)) return std::nullopt;
  return picked;
}

struct Route {
  ValueId slot, counts;  // slot[pairs, 1]
};

// One route for all products of one choice of experts, however it was reshaped for each.
Route route_of(Rewriter& r, ValueId experts, int64_t count) {
  const ValueId base = through_reshapes(r, experts);
  const int32_t key = static_cast<int32_t>(base.index());
  auto& memo = r.memo();
  if (auto it = memo.find(key); it != memo.end()) return {it->second, memo.at(-1 - key)};
  const ValueId pairs = reshaped(r, base, {elements(r.shape(base)), 1});
  const auto out = r.emit_all("MoERoute", {pairs}, {{"experts", count}});
  memo[key] = out[0];
  memo[-1 - key] = out[1];
  return {out[0], out[1]};
}

// A product of a vector a pair and a picked matrix.
struct PairProduct {
  Picked picked;
  ValueId x;
  Dim tokens, choices = 1;  // x[tokens, width], each for that many pairs
  Dim width;
  bool trans_w = false;
};

std::optional<PairProduct> pair_product(const Rewriter& r, const Op& op) {
  if (op.kind != "MatMul" || op.attrs.i("trans_a") != 0 || op.attrs.i("trans_b") != 0 ||
      op.attrs.f("alpha", 1) != 1)
    return std::nullopt;
  for (size_t side = 0; side < 2; side++) {
    auto picked = picked_of(r, op.inputs[side]);
    if (!picked) continue;
    const Shape& x = r.shape(op.inputs[1 - side]);
    const Shape& experts = r.shape(picked->experts);
    if (x.size() != experts.size() + 2 || experts.empty()) continue;
    // A column on the right of the matrix or a row on its left.
    const Dim one = side == 0 ? x.back() : x[x.size() - 2];
    if (one != Dim(1)) continue;
    PairProduct product{*picked, op.inputs[1 - side], elements(experts), 1, 0, false};
    product.width = side == 0 ? x[x.size() - 2] : x.back();
    product.trans_w = (side == 0) != picked->swapped;
    const Shape lead(x.begin(), x.end() - 2);
    if (lead != experts) {  // the choices of a token share its x
      Shape shared = experts;
      shared.back() = 1;
      if (lead != shared || !experts.back().is_static()) continue;
      product.tokens = elements(shared);
      product.choices = experts.back();
    }
    return product;
  }
  return std::nullopt;
}

// The MoECombine that gives one row a pair, ungated unless said otherwise.
const Op* pair_combine(const Rewriter& r, ValueId value, bool gated = false) {
  const Op* combine = r.producer(through_reshapes(r, value), "MoECombine");
  if (combine == nullptr || r.shape(combine->inputs[1]).size() != 2) return nullptr;
  if (r.shape(combine->inputs[1])[1] != Dim(1)) return nullptr;
  const bool has_gates = combine->inputs.size() > 2 && combine->inputs[2].valid();
  return has_gates && !gated ? nullptr : combine;
}

}  // namespace

bool match_expert_product(Rewriter& r, const Op& op) {
  auto product = pair_product(r, op);
  if (!product) return false;
  const Route route =
      route_of(r, product->picked.experts, r.shape(product->picked.weights)[0].constant);
  const Dim pairs = r.shape(route.slot)[0];
  const ValueId x = reshaped(r, product->x, {product->tokens, product->width});
  const ValueId slot = reshaped(r, route.slot, {product->tokens, product->choices});
  const ValueId rows = r.emit("MoEDispatch", {x, slot}, {{"shape", Shape{pairs, product->width}}});
  const ValueId y = r.emit("GroupedLinear", {rows, product->picked.weights, route.counts},
                           {{"trans_w", int64_t{product->trans_w}}});
  const ValueId back = r.emit("MoECombine", {y, route.slot}, {});
  return r.replace(op, "Reshape", {back}, {{"shape", r.shape(op.outputs[0])}});
}

bool match_expert_bias(Rewriter& r, const Op& op) {
  if (op.kind != "Add") return false;
  for (size_t i = 0; i < 2; i++) {
    const Op* combine = pair_combine(r, op.inputs[i]);
    const Op* linear = combine ? r.producer(combine->inputs[0], "GroupedLinear") : nullptr;
    if (linear == nullptr || (linear->inputs.size() > 3 && linear->inputs[3].valid())) continue;
    const Op* gather = r.producer(through_reshapes(r, op.inputs[1 - i]), "Gather");
    if (gather == nullptr || gather->attrs.i("axis") != 0) continue;
    const ValueId bias = gather->inputs[0];
    const Op* route = r.producer(combine->inputs[1], "MoERoute");
    if (route == nullptr ||
        through_reshapes(r, gather->inputs[1]) != through_reshapes(r, route->inputs[0]))
      continue;
    const Shape& rows = r.shape(combine->inputs[0]);
    const Shape fits{r.shape(linear->inputs[1])[0], rows[1]};
    if (r.shape(bias) != fits || elements(r.shape(op.outputs[0])) != elements(rows)) continue;
    // Nothing is repeated: both have an element for each of the result.
    if (elements(r.shape(op.inputs[i])) != elements(r.shape(op.inputs[1 - i]))) continue;
    const ValueId y =
        r.emit("GroupedLinear", {linear->inputs[0], linear->inputs[1], linear->inputs[2], bias},
               linear->attrs);
    const ValueId back = r.emit("MoECombine", {y, combine->inputs[1]}, {});
    if (!back.valid()) return false;
    return r.replace(op, "Reshape", {back}, {{"shape", r.shape(op.outputs[0])}});
  }
  return false;
}

namespace {

// What lies between two products: it starts from rows that came back by the same slots.
class PairFunction final : public RowFunction {
 public:
  PairFunction(Rewriter& r, ValueId slot)
      : RowFunction(r, r.shape(slot)[0], r.shape(slot)[0]), slot_(slot) {}

 private:
  bool is_leaf(const Op& op) const override { return op.kind == "MoECombine"; }
  bool leaf_fits(const Op& op) const override {
    return pair_combine(rewriter(), op.outputs[0]) == &op && op.inputs[1] == slot_;
  }
  ValueId leaf(const Op& op) override { return op.inputs[0]; }

  ValueId slot_;
};

// x[pairs, width] of a dispatch, one slot a pair.
bool dispatches_pairs(const Rewriter& r, const Op& op) {
  return op.kind == "MoEDispatch" && op.inputs.size() == 2 && r.shape(op.inputs[1]).size() == 2 &&
         r.shape(op.inputs[1])[1] == Dim(1);
}

// All slots are taken, each once: the rows are the pairs in another order.
bool is_permutation(const Rewriter& r, ValueId slot) {
  const Op* route = r.producer(slot, "MoERoute");
  return route != nullptr && route->attrs.i("capacity") == 0 && route->attrs.i("padded") == 0 &&
         is_index_below(r, route->inputs[0], route->attrs.i("experts"));
}

}  // namespace

bool match_expert_rows(Rewriter& r, const Op& op) {
  if (!dispatches_pairs(r, op) || !is_permutation(r, op.inputs[1])) return false;
  PairFunction rows(r, op.inputs[1]);
  return rows.fits(op.inputs[0]) && rows.replace(op, op.inputs[0]);
}

namespace {

// Whether the elements in order are 0 (`repeats` times), 1 (`repeats` times), ...
std::optional<int64_t> repeats_of(const Rewriter& r, ValueId token, Dim tokens) {
  token = through_reshapes(r, token);
  const Dim pairs = elements(r.shape(token));
  if (r.constant(token) != nullptr) {
    if (!tokens.is_static() || tokens.constant == 0 || pairs.constant % tokens.constant != 0)
      return std::nullopt;
    const int64_t repeats = pairs.constant / tokens.constant;
    const auto* values = reinterpret_cast<const int64_t*>(r.constant(token)->bytes.data());
    if (r.type(token).dtype != ir::DType::kI64) return std::nullopt;
    for (int64_t i = 0; i < pairs.constant; i++) {
      if (values[i] != i / repeats) return std::nullopt;
    }
    return repeats;
  }
  int64_t repeats = 1;
  if (const Op* expand = r.producer(token, "Expand")) {
    // [tokens, 1] to [tokens, repeats]
    const Shape &from = r.shape(expand->inputs[0]), &to = r.shape(token);
    if (from.size() != to.size() || from.empty() || from.back() != Dim(1)) return std::nullopt;
    if (!std::equal(from.begin(), from.end() - 1, to.begin()) || !to.back().is_static())
      return std::nullopt;
    repeats = to.back().constant;
    token = through_reshapes(r, expand->inputs[0]);
  }
  const Op* range = r.producer(token, "Range");
  const bool counts = range != nullptr && range->attrs.f("start") == 0 &&
                      range->attrs.f("delta", 1) == 1 && r.shape(token) == Shape{tokens};
  return counts ? std::optional(repeats) : std::nullopt;
}

// Tokens [tokens, width] of which a value is each one `repeats` times.
struct Repeated {
  ValueId tokens;
  int64_t repeats = 1;
};

std::optional<Repeated> repeated_tokens(const Rewriter& r, ValueId value, Dim width) {
  value = through_reshapes(r, value);
  if (const Op* gather = r.producer(value, "Gather")) {
    const Shape& from = r.shape(gather->inputs[0]);
    if (gather->attrs.i("axis") != 0 || from.size() != 2 || from[1] != width) return std::nullopt;
    auto repeats = repeats_of(r, gather->inputs[1], from[0]);
    return repeats ? std::optional(Repeated{gather->inputs[0], *repeats}) : std::nullopt;
  }
  const Op* expand = r.producer(value, "Expand");
  if (expand == nullptr) return std::nullopt;
  // [..., 1, width] to [..., repeats, width]
  const Shape &from = r.shape(expand->inputs[0]), &to = r.shape(value);
  const size_t rank = to.size();
  if (rank < 2 || from.size() != rank || from[rank - 1] != width || to[rank - 1] != width)
    return std::nullopt;
  if (from[rank - 2] != Dim(1) || !to[rank - 2].is_static() ||
      !std::equal(from.begin(), from.end() - 2, to.begin()))
    return std::nullopt;
  return Repeated{expand->inputs[0], to[rank - 2].constant};
}

}  // namespace

bool match_expert_choices(Rewriter& r, const Op& op) {
  if (!dispatches_pairs(r, op)) return false;
  const Dim width = r.shape(op.inputs[0])[1];
  auto repeated = repeated_tokens(r, op.inputs[0], width);
  if (!repeated) return false;
  const Dim pairs = r.shape(op.inputs[1])[0];
  if (repeated->repeats == 0 || pairs.constant % repeated->repeats != 0 ||
      pairs.batch % repeated->repeats != 0)
    return false;
  const Dim tokens(pairs.constant / repeated->repeats, pairs.batch / repeated->repeats);
  if (elements(r.shape(repeated->tokens)) !=
      Dim(tokens.constant * width.constant, tokens.batch * width.constant))
    return false;
  const ValueId x = reshaped(r, repeated->tokens, {tokens, width});
  const ValueId slot = reshaped(r, op.inputs[1], {tokens, repeated->repeats});
  return r.replace(op, "MoEDispatch", {x, slot}, op.attrs);
}

bool match_expert_gates(Rewriter& r, const Op& op) {
  if (op.kind != "Mul") return false;
  for (size_t i = 0; i < 2; i++) {
    const Op* combine = pair_combine(r, op.inputs[i]);
    if (combine == nullptr) continue;
    const Shape &y = r.shape(op.outputs[0]), &gates = r.shape(op.inputs[1 - i]);
    if (y != r.shape(op.inputs[i]) || y.back() != r.shape(combine->inputs[0])[1]) continue;
    if (gates.size() != y.size() || gates.back() != Dim(1)) continue;
    if (!std::equal(gates.begin(), gates.end() - 1, y.begin())) continue;
    const ValueId gate = reshaped(r, op.inputs[1 - i], r.shape(combine->inputs[1]));
    const ValueId back = r.emit("MoECombine", {combine->inputs[0], combine->inputs[1], gate}, {});
    if (!back.valid()) return false;
    return r.replace(op, "Reshape", {back}, {{"shape", y}});
  }
  return false;
}

bool match_expert_sum(Rewriter& r, const Op& op) {
  if (op.kind != "ReduceSum") return false;
  const Op* combine = pair_combine(r, op.inputs[0], true);
  const Shape& x = r.shape(op.inputs[0]);
  if (combine == nullptr || x.size() < 2 || x.back() != r.shape(combine->inputs[0])[1])
    return false;
  const Dim choices = x[x.size() - 2];
  const std::vector<int64_t> along{static_cast<int64_t>(x.size()) - 2};
  if (op.attrs.ints("axes") != along || !choices.is_static()) return false;
  Shape by_token(x.begin(), x.end() - 2);
  const Shape pairs{elements(by_token), choices};
  std::vector<ValueId> inputs{combine->inputs[0], reshaped(r, combine->inputs[1], pairs)};
  if (combine->inputs.size() > 2 && combine->inputs[2].valid())
    inputs.push_back(reshaped(r, combine->inputs[2], pairs));
  const ValueId y = r.emit("MoECombine", std::move(inputs), {});
  if (!y.valid()) return false;
  return r.replace(op, "Reshape", {y}, {{"shape", r.shape(op.outputs[0])}});
}

}  // namespace piper::frontend
