// Copies: Identity writes one, Accumulate adds it to what is there.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

void gradient(GradientBuilder& b) {
  if (b.grad(0).valid() && b.wants(0)) b.add_grad(0, b.grad(0));
}

// The same value under another name.
Expected<void> import_identity(ImportContext& context) {
  context.set_output(0, context.input(0));
  return {};
}

}  // namespace

const OpDef kAccumulateOp = {"Accumulate", infer_same_type, nullptr, kBackwardOnly, flops_per_element, {}, 1};
const OpDef kIdentityOp = {"Identity", infer_same_type, gradient, nullptr, flops_none,
                           {{"Identity", "", kFirstOpset, kLastOpset, import_identity}}};

}  // namespace piper::ops
