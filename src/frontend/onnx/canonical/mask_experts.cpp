// Mixture of experts by masks: dispatch[s, e, c] is 1 where token s is the c-th of expert e, and
// products of matrices move the tokens, `dispatch^T x` there and `combine y` back. The masks come
// from the router's choices by one-hot, cumulative sums and comparisons; where that is what
// MoERoute does, the products are MoEDispatch and MoECombine with padded slots.

#include <algorithm>

#include "frontend/onnx/canonical/canonical.h"
#include "frontend/onnx/canonical/row_function.h"
#include "frontend/onnx/fold.h"

namespace piper::frontend {

using ir::Dim;
using ir::Op;
using ir::Shape;
using ir::ValueId;

namespace {

Dim scaled(Dim d, int64_t factor) { return Dim(d.constant * factor, d.batch * factor); }

// Numbers in another type are the same numbers: masks and counts are small integers.
ValueId through_casts(const Rewriter& r, ValueId value) {
  while (const Op* cast = r.producer(value, "Cast")) value = cast->inputs[0];
  return value;
}
ValueId bare(const Rewriter& r, ValueId value) {
  for (;;) {
    const ValueId inside = through_casts(r, through_reshapes(r, value));
    if (inside == value) return value;
    value = inside;
  }
}

// 1 where `index` is the place along the last dim.
struct Hot {
  ValueId index;  // without casts and reshapes
  int64_t width = 0;
};

bool is_range(const Rewriter& r, ValueId value, Dim count) {
  if (!count.is_static() || elements(r.shape(value)) != count) return false;
  const auto numbers = constant_elements(r.model(), value);
  if (!numbers || r.shape(value).back() != count) return false;
  for (size_t i = 0; i < numbers->size(); i++) {
    if ((*numbers)[i] != static_cast<double>(i)) return false;
  }
  return true;
}

// What an index is when it counts from the front, without the case that it counts from the end:
// both where(i < 0, i + n, i) and i.
ValueId unwrapped(const Rewriter& r, ValueId index) {
  index = bare(r, index);
  const Op* where = r.producer(index, "Where");
  if (where == nullptr) return index;
  const Op* less = r.producer(bare(r, where->inputs[0]), "Less");
  if (less == nullptr || !r.is_scalar(less->inputs[1], 0)) return index;
  const ValueId plain = bare(r, where->inputs[2]);
  return bare(r, less->inputs[0]) == plain ? plain : index;
}

std::optional<Hot> hot_of(const Rewriter& r, ValueId value) {
  value = through_casts(r, value);
  if (const Op* slice = r.producer(value, "Slice")) {  // the first of its places
    const std::vector<int64_t> starts = slice->attrs.ints("starts"),
                               steps = slice->attrs.ints("steps");
    const Shape &from = r.shape(slice->inputs[0]), &to = r.shape(value);
    const bool first =
        std::all_of(starts.begin(), starts.end(), [](int64_t i) { return i == 0; }) &&
        std::all_of(steps.begin(), steps.end(), [](int64_t i) { return i == 1; });
    if (!first || !std::equal(from.begin(), from.end() - 1, to.begin())) return std::nullopt;
    auto whole = hot_of(r, slice->inputs[0]);
    if (whole) whole->width = to.back().constant;
    return whole;
  }
  if (const Op* where = r.producer(value, "Where")) {
    if (!r.is_scalar(where->inputs[1], 1) || !r.is_scalar(where->inputs[2], 0)) return std::nullopt;
    value = through_casts(r, where->inputs[0]);
  }
  const Op* equal = r.producer(value, "Equal");
  if (equal == nullptr || r.shape(value).empty()) return std::nullopt;
  const Dim width = r.shape(value).back();
  for (size_t side = 0; side < 2; side++) {
    const ValueId index = equal->inputs[1 - side];
    if (!is_range(r, equal->inputs[side], width) || r.shape(index).empty()) continue;
    if (r.shape(index).back() != Dim(1) || r.shape(index).size() != r.shape(value).size()) continue;
    return Hot{unwrapped(r, index), width.constant};
  }
  return std::nullopt;
}

// The choices of an expert for each pair.
struct Choice {
  ValueId index;  // [..., choices] of a TopK, or [...] of an ArgMax
  int64_t choices = 1;
  bool choices_first = false;  // pairs are in the order [choices, tokens], not [tokens, choices]
};

// `lead` dims of groups before the pairs.
std::optional<Choice> choice_of(const Rewriter& r, ValueId index, const Shape& lead) {
  Choice choice;
  if (const Op* transpose = r.producer(index, "Transpose")) {
    const Shape& shape = r.shape(index);
    if (!swaps_last_two(*transpose, shape.size()) || shape.size() != lead.size() + 2 ||
        !std::equal(lead.begin(), lead.end(), shape.begin()))
      return std::nullopt;
    choice.choices_first = true;
    index = bare(r, transpose->inputs[0]);
  }
  const Op* op = r.producer(index);
  if (op == nullptr) return std::nullopt;
  const int64_t rank = static_cast<int64_t>(r.shape(op->inputs[0]).size());
  if (op->attrs.i("axis") != rank - 1) return std::nullopt;
  choice.index = index;
  if (op->kind == "TopK" && op->outputs[1] == index) {
    choice.choices = op->attrs.i("k");
  } else if (op->kind != "ArgMax" || choice.choices_first) {
    return std::nullopt;
  }
  return choice;
}

// A mask of pairs [lead..., pairs, experts, capacity] and what it is made of.
class MaskReader {
 public:
  explicit MaskReader(const Rewriter& r) : r_(r) {}

  bool read(ValueId mask) {
    const Shape& shape = r_.shape(mask);
    if (shape.size() < 3) return false;
    lead_.assign(shape.begin(), shape.end() - 3);
    pairs_ = shape[shape.size() - 3];
    experts_ = shape[shape.size() - 2];
    capacity_ = shape.back();
    if (!pairs_.is_static() || !experts_.is_static() || !capacity_.is_static()) return false;
    if (experts_.constant < 2 || capacity_.constant < 2) return false;  // else dims look alike
    if (elements(lead_) == Dim(-1) || !whole(mask) || !expert_ || !place_) return false;
    return is_place_below(place_->index) &&
           std::all_of(kept_.begin(), kept_.end(), [&](ValueId v) { return is_kept(v); });
  }

  const Shape& lead() const { return lead_; }
  Dim pairs() const { return pairs_; }
  int64_t experts() const { return experts_.constant; }
  int64_t capacity() const { return capacity_.constant; }
  ValueId index() const { return expert_->index; }
  ValueId gates() const { return gates_; }

 private:
  // Elements of n numbers a pair.
  Dim times(Dim n) const { return scaled(elements(lead_), pairs_.constant * n.constant); }

  // A factor over both experts and places.
  bool whole(ValueId value) {
    value = through_casts(r_, value);
    const Op* mul = r_.producer(value, "Mul");
    if (mul == nullptr) return false;
    const Shape& y = r_.shape(value);
    for (ValueId factor : mul->inputs) {
      const Shape& shape = r_.shape(factor);
      if (shape.size() != y.size()) return false;
      const Dim e = shape[shape.size() - 2], c = shape.back();
      const bool ok = e == experts_ && c == capacity_ ? whole(factor)
                      : c == Dim(1) && e == experts_  ? along(factor, experts_, &expert_)
                      : e == Dim(1) && c == capacity_ ? along(factor, capacity_, &place_)
                      : e == Dim(1) && c == Dim(1)    ? number(factor)
                                                      : false;
      if (!ok) return false;
    }
    return true;
  }

  // A factor over one of them: [lead, pairs, n] but for dims of 1.
  bool along(ValueId value, Dim n, std::optional<Hot>* hot) {
    value = bare(r_, value);
    const Shape& shape = r_.shape(value);
    if (shape.empty() || shape.back() != n || elements(shape) != times(n)) return false;
    if (const Op* mul = r_.producer(value, "Mul")) {
      for (ValueId factor : mul->inputs) {
        const Shape& part = r_.shape(factor);
        if (part.size() != shape.size()) return false;
        const bool full = part.back() == n && elements(part) == elements(shape);
        if (full ? !along(factor, n, hot) : part.back() != Dim(1) || !number(factor)) return false;
      }
      return true;
    }
    const auto found = hot_of(r_, value);
    if (!found || found->width != n.constant) return false;
    if (*hot && (*hot)->index != found->index) return false;
    *hot = found;
    return true;
  }

  // A number a pair: whether it is kept, or its gate.
  bool number(ValueId value) {
    if (elements(r_.shape(value)) != times(1)) return false;
    const ValueId inside = bare(r_, value);
    if (r_.producer(inside, "Less") != nullptr) {
      kept_.push_back(inside);
      return true;
    }
    if (gates_.valid()) return false;
    gates_ = value;
    return true;
  }

  bool is_expert_hot(ValueId value) const {
    const auto hot = hot_of(r_, bare(r_, value));
    return hot && hot->index == expert_->index && hot->width == experts_.constant;
  }

  // The running number of pairs of each expert, in the order of the pairs.
  bool is_running_sum(ValueId value, bool exclusive) const {
    const Op* sum = r_.producer(bare(r_, value), "CumSum");
    if (sum == nullptr || !is_expert_hot(sum->inputs[0]) || sum->attrs.i("reverse") != 0)
      return false;
    const Shape& shape = r_.shape(sum->inputs[0]);
    const int64_t axis = static_cast<int64_t>(shape.size()) - 2;
    return sum->attrs.i("axis") == axis && shape[static_cast<size_t>(axis)] == pairs_ &&
           elements(shape) == times(experts_) && (sum->attrs.i("exclusive") != 0) == exclusive;
  }

  // A place, as far as it is below the capacity. What it is above does not matter where those pairs
  // are masked, and must be above elsewhere.
  bool is_place_below(ValueId value) const {
    value = bare(r_, value);
    if (is_place(value)) return true;
    const int64_t least = capacity() - (kept_.empty() ? 0 : 1);
    const auto caps = [&](ValueId v) {
      return r_.scalar(v).value_or(-1) >= static_cast<double>(least);
    };
    if (const Op* min = r_.producer(value, "Min"))
      return caps(min->inputs[1]) && is_place(min->inputs[0]);
    if (const Op* mul = r_.producer(value, "Mul"); mul != nullptr && !kept_.empty()) {
      return (is_place(mul->inputs[0]) && is_kept(mul->inputs[1])) ||
             (is_place(mul->inputs[1]) && is_kept(mul->inputs[0]));
    }
    const Op* where = r_.producer(value, "Where");
    if (where == nullptr) return false;
    if (!kept_.empty() && is_kept(where->inputs[0])) return is_place(where->inputs[1]);
    const Op* above = r_.producer(bare(r_, where->inputs[0]), "Greater");
    return above != nullptr && is_place(above->inputs[0]) && caps(above->inputs[1]) &&
           caps(where->inputs[1]) && is_place(where->inputs[2]);
  }
  bool is_kept(ValueId value) const {
    const Op* less = r_.producer(bare(r_, value), "Less");
    return less != nullptr && r_.is_scalar(less->inputs[1], static_cast<double>(capacity())) &&
           is_place(less->inputs[0]);
  }

  // How many pairs before this one chose its expert.
  bool is_place(ValueId value) const {
    value = bare(r_, value);
    if (const Op* sub = r_.producer(value, "Sub"))
      return r_.is_scalar(sub->inputs[1], 1) && is_own_sum(sub->inputs[0], false);
    return is_own_sum(value, true);
  }
  bool is_own_sum(ValueId value, bool exclusive) const {
    const Op* sum = r_.producer(bare(r_, value), "ReduceSum");
    if (sum == nullptr) return false;
    const Shape& shape = r_.shape(sum->inputs[0]);
    if (sum->attrs.ints("axes") != std::vector<int64_t>{static_cast<int64_t>(shape.size()) - 1})
      return false;
    const Op* mul = r_.producer(through_casts(r_, sum->inputs[0]), "Mul");
    if (mul == nullptr || shape.back() != experts_) return false;
    for (size_t i = 0; i < 2; i++) {
      if (!is_expert_hot(mul->inputs[i])) continue;
      const ValueId other = mul->inputs[1 - i];
      if (is_running_sum(other, exclusive)) return true;
      const Op* sub = exclusive ? r_.producer(bare(r_, other), "Sub") : nullptr;
      if (sub && is_running_sum(sub->inputs[0], false) &&
          (r_.is_scalar(sub->inputs[1], 1) || is_expert_hot(sub->inputs[1])))
        return true;
    }
    return false;
  }

  const Rewriter& r_;
  Shape lead_;
  Dim pairs_, experts_, capacity_;
  std::optional<Hot> expert_, place_;
  std::vector<ValueId> kept_;
  ValueId gates_;
};

// A mask of tokens [lead..., tokens, experts, capacity].
struct Mask {
  Shape lead;
  Dim tokens;
  int64_t experts = 0, capacity = 0;
  Choice choice;
  ValueId gates;  // in the order of the pairs

  Dim rows() const { return scaled(elements(lead), experts * capacity); }
  Shape with(std::initializer_list<Dim> dims) const {
    Shape shape = lead;
    shape.insert(shape.end(), dims);
    return shape;
  }
};

std::optional<Mask> mask_of(const Rewriter& r, ValueId value) {
  value = bare(r, value);
  const Op* sum = r.producer(value, "ReduceSum");
  MaskReader reader(r);
  if (!reader.read(sum != nullptr ? bare(r, sum->inputs[0]) : value)) return std::nullopt;
  const auto choice = choice_of(r, reader.index(), reader.lead());
  if (!choice || reader.pairs().constant % choice->choices != 0) return std::nullopt;
  Mask mask{reader.lead(),    reader.pairs().constant / choice->choices,
            reader.experts(), reader.capacity(),
            *choice,          reader.gates()};
  if (elements(r.shape(choice->index)) != scaled(elements(mask.lead), reader.pairs().constant))
    return std::nullopt;
  if (sum == nullptr) return choice->choices == 1 ? std::optional(mask) : std::nullopt;
  // Summed over the choices of each token.
  const Dim k = choice->choices;
  const Shape summed = choice->choices_first
                           ? mask.with({k, mask.tokens, mask.experts, mask.capacity})
                           : mask.with({mask.tokens, k, mask.experts, mask.capacity});
  const int64_t axis = static_cast<int64_t>(mask.lead.size()) + (choice->choices_first ? 0 : 1);
  if (r.shape(sum->inputs[0]) != summed || sum->attrs.ints("axes") != std::vector<int64_t>{axis})
    return std::nullopt;
  return mask;
}

ValueId slot_of(Rewriter& r, const Mask& mask) {
  const ValueId index =
      reshaped(r, mask.choice.index, mask.with({mask.tokens, mask.choice.choices}));
  const auto route = r.emit_all("MoERoute", {index},
                                {{"experts", mask.experts},
                                 {"capacity", mask.capacity},
                                 {"choices_first", int64_t{mask.choice.choices_first}},
                                 {"padded", int64_t{2}}});
  return route.empty() ? ValueId() : route[0];
}

// dispatch^T x: dispatch as [lead..., experts * capacity, tokens].
std::optional<Mask> transposed_mask(const Rewriter& r, ValueId value) {
  const Op* transpose = r.producer(through_reshapes(r, through_casts(r, value)), "Transpose");
  if (transpose == nullptr) return std::nullopt;
  auto mask = mask_of(r, transpose->inputs[0]);
  if (!mask || mask->gates.valid()) return std::nullopt;
  // The tokens go behind the places, whether those are one dim or two.
  const Shape& from = r.shape(transpose->inputs[0]);
  const size_t lead = mask->lead.size();
  if (from.size() <= lead || from[lead] != mask->tokens ||
      !std::equal(mask->lead.begin(), mask->lead.end(), from.begin()))
    return std::nullopt;
  std::vector<int64_t> perm;
  for (size_t i = 0; i < from.size(); i++)
    perm.push_back(static_cast<int64_t>(i < lead ? i : i + 1 < from.size() ? i + 1 : lead));
  if (transpose->attrs.ints("perm") != perm) return std::nullopt;
  if (r.shape(value) != mask->with({mask->experts * mask->capacity, mask->tokens}))
    return std::nullopt;
  return mask;
}

bool match_dispatch(Rewriter& r, const Op& op) {
  const auto mask = transposed_mask(r, op.inputs[0]);
  if (!mask) return false;
  const Dim width = r.shape(op.inputs[1]).back();
  if (r.shape(op.inputs[1]) != mask->with({mask->tokens, width})) return false;
  const ValueId slot = slot_of(r, *mask);
  const ValueId rows =
      r.emit("MoEDispatch", {op.inputs[1], slot}, {{"shape", Shape{mask->rows(), width}}});
  return rows.valid() && r.replace(op, "Reshape", {rows}, {{"shape", r.shape(op.outputs[0])}});
}

bool match_combine(Rewriter& r, const Op& op) {
  const auto mask = mask_of(r, op.inputs[0]);
  if (!mask || r.shape(op.inputs[0]) != mask->with({mask->tokens, mask->experts * mask->capacity}))
    return false;
  const Dim width = r.shape(op.inputs[1]).back();
  if (r.shape(op.inputs[1]) != mask->with({mask->experts * mask->capacity, width})) return false;
  std::vector<ValueId> inputs{reshaped(r, op.inputs[1], {mask->rows(), width}), slot_of(r, *mask)};
  if (mask->gates.valid()) {
    const Dim k = mask->choice.choices;
    if (mask->choice.choices_first) {
      const ValueId gates = reshaped(r, mask->gates, mask->with({k, mask->tokens}));
      std::vector<int64_t> perm(mask->lead.size() + 2);
      for (size_t i = 0; i < perm.size(); i++) perm[i] = static_cast<int64_t>(i);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      inputs.push_back(r.emit("Transpose", {gates}, {{"perm", perm}}));
    } else {
      inputs.push_back(reshaped(r, mask->gates, mask->with({mask->tokens, k})));
    }
  }
  const ValueId y = r.emit("MoECombine", std::move(inputs), {});
  return y.valid() && r.replace(op, "Reshape", {y}, {{"shape", r.shape(op.outputs[0])}});
}

}  // namespace

bool match_mask_experts(Rewriter& r, const Op& op) {
  if (op.kind != "MatMul" || op.attrs.i("trans_a") != 0 || op.attrs.i("trans_b") != 0 ||
      op.attrs.f("alpha", 1) != 1)
    return false;
  return match_dispatch(r, op) || match_combine(r, op);
}

}  // namespace piper::frontend
