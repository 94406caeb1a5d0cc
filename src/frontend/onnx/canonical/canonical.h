// The canonical rewrites, in the order they run. Each is exact: the same value for every input.
#pragma once

#include "frontend/onnx/canonical/rewriter.h"

namespace piper::frontend {

// 0.5 x (1 + erf(x / sqrt 2)), and the tanh form  ->  Gelu
bool match_gelu(Rewriter& r, const ir::Op& op);
// x sigmoid(x)  ->  Silu
bool match_silu(Rewriter& r, const ir::Op& op);
// silu(gate) up  ->  SwiGlu
bool match_swiglu(Rewriter& r, const ir::Op& op);
// (x - mean(x)) / sqrt(var(x) + eps) scale  ->  LayerNorm
bool match_layer_norm(Rewriter& r, const ir::Op& op);
// LayerNorm + bias  ->  LayerNorm with bias
bool match_layer_norm_bias(Rewriter& r, const ir::Op& op);
// x / sqrt(mean(x x) + eps) scale  ->  RmsNorm
bool match_rms_norm(Rewriter& r, const ir::Op& op);
// x cos + rotate_half(x) sin  ->  Rotary
bool match_rotary(Rewriter& r, const ir::Op& op);
// MatMul by a parameter or its transpose  ->  Linear
bool match_linear(Rewriter& r, const ir::Op& op);
// Linear + bias[N]  ->  Linear with bias
bool match_linear_bias(Rewriter& r, const ir::Op& op);
// Linear between two reshapes that only merge and split rows  ->  Linear
bool match_linear_reshape(Rewriter& r, const ir::Op& op);
// softmax(scale q k^T + mask) v  ->  Attention
bool match_attention(Rewriter& r, const ir::Op& op);
// Attention over keys and values repeated for groups of heads  ->  Attention over the unrepeated
// ones
bool match_attention_groups(Rewriter& r, const ir::Op& op);

// Products with masks of places, made from the choices of experts  ->  MoEDispatch, MoECombine of
// padded rows
bool match_mask_experts(Rewriter& r, const ir::Op& op);
// MoECombine of padded rows, each expert's times its matrix of a stack  ->  GroupedLinear of rows
// that lie together
bool match_padded_experts(Rewriter& r, const ir::Op& op);
// x times weights picked by expert, one matrix a row  ->  MoERoute, MoEDispatch, GroupedLinear,
// MoECombine
bool match_expert_product(Rewriter& r, const ir::Op& op);
// A combined product + bias picked by expert  ->  GroupedLinear with bias
bool match_expert_bias(Rewriter& r, const ir::Op& op);
// MoEDispatch of a function of what MoECombine gave back  ->  the function of the rows
bool match_expert_rows(Rewriter& r, const ir::Op& op);
// MoEDispatch of tokens repeated for their choices  ->  MoEDispatch of the tokens
bool match_expert_choices(Rewriter& r, const ir::Op& op);
// MoECombine times a number a row  ->  MoECombine with gates
bool match_expert_gates(Rewriter& r, const ir::Op& op);
// Sum of MoECombine over the choices  ->  MoECombine of all choices
bool match_expert_sum(Rewriter& r, const ir::Op& op);

struct CanonicalPass {
  const char* name;
  Rewriter::Matcher match;
};
const std::vector<CanonicalPass>& canonical_passes();

// Runs all of them.
void canonicalise(ir::Model* model);

}  // namespace piper::frontend
