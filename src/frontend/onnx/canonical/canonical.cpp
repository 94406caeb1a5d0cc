#include "frontend/onnx/canonical/canonical.h"

namespace piper::frontend {

const std::vector<CanonicalPass>& canonical_passes() {
  static const std::vector<CanonicalPass> passes = {
      {"gelu", match_gelu},
      {"silu", match_silu},
      {"swiglu", match_swiglu},  // reads Silu
      {"layer_norm", match_layer_norm},
      {"layer_norm_bias", match_layer_norm_bias},
      {"rms_norm", match_rms_norm},
      {"linear", match_linear},
      {"linear_bias", match_linear_bias},
      {"linear_reshape", match_linear_reshape},
      {"rotary", match_rotary},
      {"attention", match_attention},
      {"attention_groups", match_attention_groups},  // of opset 23's Attention
      {"mask_experts", match_mask_experts},
      {"padded_experts", match_padded_experts},
      {"expert_product", match_expert_product},
      {"expert_bias", match_expert_bias},
      {"expert_rows", match_expert_rows},
      {"expert_choices", match_expert_choices},
      {"expert_gates", match_expert_gates},
      {"expert_sum", match_expert_sum},
  };
  return passes;
}

void canonicalise(ir::Model* model) {
  for (const CanonicalPass& pass : canonical_passes()) Rewriter(*model).run(pass.match);
}

}  // namespace piper::frontend
