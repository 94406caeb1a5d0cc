// Attention: out = softmax(scale * q k^T + mask) v for each head, where a group of query heads shares a key head.
// It keeps the log of the row sums (lse) for the backward pass, never the S x T matrix; a row that sees nothing gives
// zeros, and its lse is 0.

#include <cmath>

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

Expected<Shape> score_shape(const InferInput& in) {
  const TensorType &q = in.type(0), &k = in.type(1), &v = in.type(2);
  const Shape &a = q.shape, &b = k.shape, &c = v.shape;
  bool fits = a.size() == 4 && b.size() == 4 && c.size() == 4 && a[0] == b[0] && a[0] == c[0] && a[3] == b[3] &&
              b[1] == c[1] && b[2] == c[2] && q.dtype == k.dtype && q.dtype == v.dtype && is_float(q.dtype);
  fits = fits && a[1].is_static() && b[1].is_static() && b[1].constant > 0 && a[1].constant % b[1].constant == 0;
  if (!fits) {
    return support::user_error("attention of q " + to_string(q) + ", k " + to_string(k) + ", v " + to_string(v) +
                               " is not [B,H,S,d], [B,G,T,d], [B,G,T,e] with H a multiple of G");
  }
  Shape scores{a[0], a[1], a[2], b[2]};
  if (in.present(3)) {
    const TensorType& mask = in.type(3);
    auto all = broadcast(mask.shape, scores);
    if (!all || *all != scores || (mask.dtype != q.dtype && mask.dtype != DType::kBool)) {
      return support::user_error("the attention mask " + to_string(mask) + " is neither " +
                                 to_string(TensorType{q.dtype, scores}) + " nor bool, or does not broadcast to it");
    }
  }
  return scores;
}

Expected<std::vector<TensorType>> infer_attention(const InferInput& in) {
  auto scores = score_shape(in);
  if (!scores) return tl::make_unexpected(scores.error());
  const Shape& s = *scores;
  DType dtype = in.type(0).dtype;
  return std::vector<TensorType>{{dtype, {s[0], s[1], s[2], in.type(2).shape[3]}}, {dtype, {s[0], s[1], s[2]}}};
}

Expected<std::vector<TensorType>> infer_attention_grad(const InferInput& in) {
  auto scores = score_shape(in);
  if (!scores) return tl::make_unexpected(scores.error());
  const Shape& s = *scores;
  TensorType out{in.type(0).dtype, {s[0], s[1], s[2], in.type(2).shape[3]}};
  if (in.type(4) != out || in.type(6) != out || in.type(5).shape != Shape{s[0], s[1], s[2]}) {
    return support::user_error("AttentionGrad: out, lse or dout do not fit q, k and v");
  }
  return std::vector<TensorType>{in.type(0), in.type(1), in.type(2)};
}

ValueId reshape(GradientBuilder& g, ValueId x, const Shape& shape) {
  return g.emit("Reshape", {x}, {{"shape", shape}});
}

// k or v repeated for every query head of its group.
ValueId per_head(GradientBuilder& g, ValueId x, Dim heads) {
  const Shape s = g.type(x).shape;
  if (s[1] == heads) return x;
  Dim group(heads.constant / s[1].constant);
  x = g.emit("Expand", {reshape(g, x, {s[0], s[1], Dim(1), s[2], s[3]})},
             {{"shape", Shape{s[0], s[1], group, s[2], s[3]}}});
  return reshape(g, x, {s[0], heads, s[2], s[3]});
}

// An additive mask is rarely trained (relative position biases are): its gradient is written out in plain ops and does
// make the S x T matrix.
void gradient_of_mask(GradientBuilder& g, ValueId dout, double scale) {
  const Shape q = g.type(g.input(0)).shape;
  auto product = [&](ValueId a, ValueId b, double alpha) {
    return g.emit("MatMul", {a, b}, {{"alpha", alpha}, {"trans_a", int64_t{0}}, {"trans_b", int64_t{1}}});
  };
  ValueId scores = product(g.input(0), per_head(g, g.input(1), q[1]), scale);
  scores = g.emit("Add", {scores, g.input(3)});
  ValueId p = g.emit("Exp", {g.emit("Sub", {scores, reshape(g, g.output(1), {q[0], q[1], q[2], Dim(1)})})});
  if (g.op().attrs.i("causal")) p = g.emit("Trilu", {p}, {{"upper", int64_t{0}}, {"k", int64_t{0}}});
  ValueId dp = product(dout, per_head(g, g.input(2), q[1]), 1);
  ValueId row = g.emit("ReduceSum", {g.emit("Mul", {dout, g.output(0)})},
                       {{"axes", std::vector<int64_t>{3}}, {"keepdims", int64_t{1}}});
  g.add_grad(3, g.sum_to(g.emit("Mul", {p, g.emit("Sub", {dp, row})}), g.input(3)));
}

double scale_of(const Attrs& attrs, const Shape& q) {
  return attrs.f("scale", 1 / std::sqrt(static_cast<double>(q[3].constant)));
}

void gradient_attention(GradientBuilder& g) {
  ValueId dout = g.grad(0);
  if (!dout.valid()) return;
  double scale = scale_of(g.op().attrs, g.type(g.input(0)).shape);
  if (g.wants(0) || g.wants(1) || g.wants(2)) {
    std::vector<ValueId> grads =
        g.emit_all("AttentionGrad", {g.input(0), g.input(1), g.input(2), g.input(3), g.output(0), g.output(1), dout},
                   {{"causal", g.op().attrs.i("causal")}, {"scale", scale}});
    for (size_t i = 0; i < 3; i++) {
      if (g.wants(i)) g.add_grad(i, grads[i]);
    }
  }
  if (g.input(3).valid() && g.wants(3)) gradient_of_mask(g, dout, scale);
}

// Pairs of a query and a key that see each other; half of them under a causal mask.
double pairs(const CostInput& in) {
  const std::vector<int64_t>&q = in.inputs[0], &k = in.inputs[1];
  double all = static_cast<double>(q[0] * q[1] * q[2]) * static_cast<double>(k[2]);
  return in.attrs.i("causal") ? all / 2 : all;
}
double flops_attention(const CostInput& in) {
  return pairs(in) * static_cast<double>(2 * (in.inputs[0][3] + in.inputs[2][3]) + 14);
}
double flops_attention_grad(const CostInput& in) {
  return pairs(in) * static_cast<double>(2 * (3 * in.inputs[0][3] + 2 * in.inputs[2][3]) + 14);
}

bool couples(const Attrs&, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return ir::sample_dim(inputs[0].shape) > 1 || ir::sample_dim(inputs[1].shape) > 1;
}

// [B, S, H * d] -> [B, H, S, d]; 4-D values already are.
Expected<ValueId> split_heads(ImportContext& c, size_t i, int64_t heads) {
  ValueId x = c.input(i);
  const Shape s = c.type(x).shape;
  if (s.size() == 4) return x;
  if (s.size() != 3 || heads <= 0 || !s[2].is_static() || s[2].constant % heads) {
    return support::user_error("attention of " + to_string(c.type(x)) + " with " + std::to_string(heads) + " heads");
  }
  x = c.emit("Reshape", {x}, {{"shape", Shape{s[0], s[1], Dim(heads), Dim(s[2].constant / heads)}}});
  return c.emit("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

Expected<void> import_attention(ImportContext& c) {
  const char* absent[] = {"", "", "", "", "past_key", "past_value", "nonpad_kv_seqlen"};
  for (size_t i = 4; i < std::min<size_t>(c.num_inputs(), 7); i++) {
    if (c.has_input(i)) {
      return support::user_error(std::string("Attention with `") + absent[i] + "` is for generation, not training",
                                 "export with `use_cache=False`");
    }
  }
  for (size_t i = 1; i < c.num_outputs(); i++) {
    if (c.output_used(i)) return support::user_error("only the first output of Attention can be read");
  }
  if (c.attrs().f("softcap") != 0) return support::user_error("Attention with `softcap` is not supported");
  auto q = split_heads(c, 0, c.attrs().i("q_num_heads"));
  if (!q) return tl::make_unexpected(q.error());
  auto k = split_heads(c, 1, c.attrs().i("kv_num_heads"));
  if (!k) return tl::make_unexpected(k.error());
  auto v = split_heads(c, 2, c.attrs().i("kv_num_heads"));
  if (!v) return tl::make_unexpected(v.error());
  const bool flat = c.type(c.input(0)).shape.size() == 3;
  Attrs attrs{{"causal", c.attrs().i("is_causal")}, {"scale", scale_of(c.attrs(), c.type(*q).shape)}};
  ValueId mask = c.has_input(3) ? c.input(3) : ValueId();
  ValueId y = c.emit_all("Attention", {*q, *k, *v, mask}, attrs)[0];
  if (flat) {
    const Shape s = c.type(y).shape;  // [B, H, S, e]
    y = c.emit("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    y = c.emit("Reshape", {y}, {{"shape", Shape{s[0], s[2], Dim(s[1].constant * s[3].constant)}}});
  }
  c.set_output(0, y);
  return {};
}

}  // namespace

extern const OpDef kAttentionOp{
    .name = "Attention",
    .infer = infer_attention,
    .gradient = gradient_attention,
    .why_no_gradient = nullptr,
    .flops = flops_attention,
    .imports = {{"Attention", "", 23, kLastOpset, import_attention}},
    .couples_samples = couples,
};
extern const OpDef kAttentionGradOp{
    .name = "AttentionGrad",
    .infer = infer_attention_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_attention_grad,
    .imports = {},
};

}  // namespace piper::ops
