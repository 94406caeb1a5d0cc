// Attention: softmax(scale q k^T + mask) v over [B, H, S, d], in the forms that exporters write it.
// A mask that is known and exactly causal becomes the flag; keys and values repeated for groups of
// heads are read unrepeated.

#include <cmath>

#include "frontend/onnx/canonical/canonical.h"
#include "frontend/onnx/fold.h"

namespace piper::frontend {

using ir::Op;
using ir::Shape;
using ir::ValueId;

namespace {

// What is added to or put in the place of hidden scores, when softmax makes exactly zero of it.
constexpr double kHidden = -1e30;

struct Mask {
  ValueId value;
  bool causal = false;
};

struct Scores {
  ValueId q;
  ValueId keys;  // [B, H, d, T], or [B, H, T, d] when not transposed
  bool transposed = true;
  double scale = 1;
  Mask mask;
};

enum class Pattern { kAllVisible, kCausal, kOther };

// What a constant mask hides, over the last two dims of [.., S, T]; every leading index must agree.
Pattern mask_pattern(const ir::Constant& mask, const Shape& scores, bool keep_when_true) {
  const Shape& shape = mask.type.shape;
  const size_t n = scores.size();
  if (!scores[n - 1].is_static() || !scores[n - 2].is_static()) return Pattern::kOther;
  const int64_t s = scores[n - 2].constant, t = scores[n - 1].constant;
  const int64_t columns = shape.empty() ? 1 : shape.back().constant;
  const int64_t rows = shape.size() < 2 ? 1 : shape[shape.size() - 2].constant;
  const int64_t count = ir::num_elements(shape).constant;
  const bool is_bool = mask.type.dtype == ir::DType::kBool;
  bool all_visible = true, causal = s == t && rows == s && columns == t;
  for (int64_t i = 0; i < count; i++) {
    const double value = element(mask, static_cast<size_t>(i));
    const bool visible = is_bool ? (value != 0) == keep_when_true : value == 0;
    const bool hidden = is_bool ? !visible : value <= kHidden;
    const bool below = i % columns <= (i / columns) % rows;
    all_visible = all_visible && visible;
    causal = causal && (below ? visible : hidden);
  }
  return all_visible ? Pattern::kAllVisible : causal ? Pattern::kCausal : Pattern::kOther;
}

std::optional<Scores> match_product(const Rewriter& r, ValueId value) {
  const Scaled outer = peel_scale(r, value);
  const Op* product = r.producer(outer.value, "MatMul");
  if (product == nullptr || product->attrs.i("trans_a") != 0 || r.shape(outer.value).size() != 4)
    return std::nullopt;
  const Scaled q = peel_scale(r, product->inputs[0]);
  const Scaled k = peel_scale(r, product->inputs[1]);
  Scores scores;
  scores.q = q.value;
  scores.keys = k.value;
  scores.transposed = product->attrs.i("trans_b") == 0;
  scores.scale = outer.scale * q.scale * k.scale * product->attrs.f("alpha", 1);
  return scores;
}

std::optional<Scores> match_additive(const Rewriter& r, const Op& add) {
  for (size_t i = 0; i < 2; i++) {
    auto scores = match_product(r, add.inputs[i]);
    const ValueId mask = add.inputs[1 - i];
    if (!scores || r.type(add.inputs[i]) != r.type(add.outputs[0])) continue;
    const ir::Constant* constant = r.constant(mask);
    const Pattern pattern = constant != nullptr
                                ? mask_pattern(*constant, r.shape(add.inputs[i]), true)
                                : Pattern::kOther;
    scores->mask.causal = pattern == Pattern::kCausal;
    if (pattern == Pattern::kOther) scores->mask.value = mask;
    return scores;
  }
  return std::nullopt;
}

// Where(condition, fill, scores) and Where(condition, scores, fill).
std::optional<Scores> match_where(Rewriter& r, const Op& where) {
  for (size_t fill = 1; fill < 3; fill++) {
    const ValueId kept = where.inputs[3 - fill];
    auto number = r.scalar(where.inputs[fill]);
    if (!number || *number > kHidden || r.type(kept) != r.type(where.outputs[0])) continue;
    auto scores = match_product(r, kept);
    if (!scores) continue;
    const bool keep_when_true = fill == 2;
    const ValueId condition = where.inputs[0];
    const ir::Constant* constant = r.constant(condition);
    const Pattern pattern = constant != nullptr
                                ? mask_pattern(*constant, r.shape(kept), keep_when_true)
                                : Pattern::kOther;
    scores->mask.causal = pattern == Pattern::kCausal;
    if (pattern != Pattern::kOther) return scores;
    // A finite fill leaves a row that hides everything uniform, which no mask of Attention does.
    if (!std::isinf(*number)) continue;
    scores->mask.value = keep_when_true ? condition : r.emit("Not", {condition}, {});
    return scores;
  }
  return std::nullopt;
}

std::optional<Scores> match_scores(Rewriter& r, ValueId value) {
  if (const Op* add = r.producer(value, "Add")) return match_additive(r, *add);
  if (const Op* where = r.producer(value, "Where")) return match_where(r, *where);
  return match_product(r, value);
}

// Softmax over the last dim, perhaps with the rows that hide everything set to zero afterwards.
const Op* match_softmax(const Rewriter& r, ValueId value) {
  const Op* softmax = r.producer(value, "Softmax");
  if (const Op* where = r.producer(value, "Where")) {
    const Op* is_nan = r.producer(where->inputs[0], "IsNaN");
    if (is_nan == nullptr || !r.is_scalar(where->inputs[1], 0) ||
        is_nan->inputs[0] != where->inputs[2])
      return nullptr;
    softmax = r.producer(where->inputs[2], "Softmax");
  }
  if (softmax == nullptr) return nullptr;
  const int64_t axis = softmax->attrs.i("axis", -1),
                rank = static_cast<int64_t>(r.shape(value).size());
  return axis == -1 || axis == rank - 1 ? softmax : nullptr;
}

// A value of a given shape as the reshape of another one: itself, or what it was reshaped from.
struct Reshaped {
  ValueId source;
  Shape shape;
};

Reshaped as_reshape(const Rewriter& r, ValueId value) {
  const Op* reshape = r.producer(value, "Reshape");
  return {reshape != nullptr ? reshape->inputs[0] : value, r.shape(value)};
}

// [B, H, T, d] out of [B, H, d, T], and the scale taken off on the way.
struct Keys {
  Reshaped keys;
  double scale = 1;
};

std::optional<Keys> untranspose(Rewriter& r, ValueId keys) {
  const Shape& s = r.shape(keys);
  const Shape wanted{s[0], s[1], s[3], s[2]};
  if (const Op* transpose = r.producer(keys, "Transpose")) {
    std::vector<int64_t> perm = transpose->attrs.ints("perm");
    std::swap(perm[2], perm[3]);
    const ValueId plain = r.emit("Transpose", {transpose->inputs[0]}, {{"perm", perm}});
    if (!plain.valid()) return std::nullopt;
    const Scaled scaled = peel_scale(r, plain);
    return Keys{as_reshape(r, scaled.value), scaled.scale};
  }
  // torch.export merges batch and heads for the transpose: [B, H, T, d] -> [BH, T, d] -> [BH, d, T]
  // -> [B, H, d, T].
  const Op* split = r.producer(keys, "Reshape");
  const Op* swap = split != nullptr ? r.producer(split->inputs[0], "Transpose") : nullptr;
  if (swap != nullptr && swap->attrs.ints("perm") == std::vector<int64_t>{0, 2, 1}) {
    const Shape& merged = r.shape(swap->inputs[0]);
    if (merged[1] == wanted[2] && merged[2] == wanted[3]) {
      return Keys{{as_reshape(r, swap->inputs[0]).source, wanted}, 1};
    }
  }
  const ValueId plain = r.emit("Transpose", {keys}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  return plain.valid() ? std::optional<Keys>(Keys{{plain, wanted}, 1}) : std::nullopt;
}

// The keys or values [B, G, T, d] that [B, H, T, d] repeats for every group of H / G heads; invalid
// when it does not.
ValueId unrepeated(Rewriter& r, const Reshaped& repeated) {
  const Op* expand = r.producer(repeated.source, "Expand");
  if (expand == nullptr) return ValueId();
  const Shape &from = r.shape(expand->inputs[0]), &to = r.shape(repeated.source),
              &out = repeated.shape;
  if (from.size() != 5 || to.size() != 5 || from[2] != ir::Dim(1)) return ValueId();
  for (size_t i : {0, 1, 3, 4}) {
    if (from[i] != to[i]) return ValueId();
  }
  if (!to[1].is_static() || !to[2].is_static() || out[0] != to[0] || out[2] != to[3] ||
      out[3] != to[4] || out[1] != ir::Dim(to[1].constant * to[2].constant)) {
    return ValueId();
  }
  return r.emit("Reshape", {expand->inputs[0]}, {{"shape", Shape{to[0], to[1], to[3], to[4]}}});
}

ValueId materialise(Rewriter& r, const Reshaped& value) {
  return r.emit("Reshape", {value.source}, {{"shape", value.shape}});
}

}  // namespace

bool match_attention(Rewriter& r, const Op& op) {
  if (op.kind != "MatMul" || op.attrs.i("trans_a") != 0 || op.attrs.i("trans_b") != 0 ||
      op.attrs.f("alpha", 1) != 1) {
    return false;
  }
  if (r.shape(op.outputs[0]).size() != 4) return false;
  const Op* softmax = match_softmax(r, op.inputs[0]);
  if (softmax == nullptr) return false;
  auto scores = match_scores(r, softmax->inputs[0]);
  if (!scores || r.shape(scores->keys).size() != 4 || r.shape(op.inputs[1]).size() != 4)
    return false;
  Keys keys{as_reshape(r, scores->keys), 1};
  if (scores->transposed) {
    auto plain = untranspose(r, scores->keys);
    if (!plain) return false;
    keys = *plain;
  }
  const Reshaped values = as_reshape(r, op.inputs[1]);
  ValueId k = unrepeated(r, keys.keys), v = unrepeated(r, values);
  if (!k.valid() || !v.valid() || r.shape(k)[1] != r.shape(v)[1]) {
    k = materialise(r, keys.keys);
    v = op.inputs[1];
  }
  if (!k.valid() || !v.valid()) return false;
  std::vector<ValueId> inputs{scores->q, k, v};
  if (scores->mask.value.valid()) inputs.push_back(scores->mask.value);
  return r.replace(
      op, "Attention", std::move(inputs),
      {{"causal", int64_t{scores->mask.causal}}, {"scale", scores->scale * keys.scale}});
}

bool match_attention_groups(Rewriter& r, const Op& op) {
  if (op.kind != "Attention") return false;
  const ValueId k = unrepeated(r, as_reshape(r, op.inputs[1]));
  const ValueId v = unrepeated(r, as_reshape(r, op.inputs[2]));
  if (!k.valid() || !v.valid() || r.shape(k)[1] != r.shape(v)[1]) return false;
  std::vector<ValueId> inputs = op.inputs;
  inputs[1] = k;
  inputs[2] = v;
  return r.replace(op, "Attention", std::move(inputs), op.attrs);
}

}  // namespace piper::frontend
