// Dims in another order.

#include <numeric>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  const TensorType& x = in.type(0);
  const std::vector<int64_t> perm = in.attrs.ints("perm");
  std::vector<bool> seen(x.shape.size(), false);
  Shape shape;
  for (int64_t dim : perm) {
    if (normalize_dim(dim, seen.size()) != dim || seen[static_cast<size_t>(dim)]) break;
    seen[static_cast<size_t>(dim)] = true;
    shape.push_back(x.shape[static_cast<size_t>(dim)]);
  }
  if (perm.size() != seen.size() || shape.size() != seen.size()) {
    return user_error("its perm does not name every dim of " + ir::to_string(x) + " once");
  }
  return std::vector<TensorType>{{x.dtype, shape}};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  const std::vector<int64_t> perm = b.op().attrs.ints("perm");
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); i++) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  b.add_grad(0, b.emit("Transpose", {b.grad(0)}, {{"perm", inverse}}));
}

Expected<void> import(ImportContext& context) {
  const ValueId x = context.input(0);
  std::vector<int64_t> perm = context.attrs().ints("perm");
  if (!context.attrs().has("perm")) {
    perm.resize(context.type(x).shape.size());
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  context.set_output(0, context.emit("Transpose", {x}, {{"perm", perm}}));
  return {};
}

}  // namespace

const OpDef kTransposeOp = {"Transpose", infer, gradient, nullptr, flops_none,
                            {{"Transpose", "", kFirstOpset, kLastOpset, import}}};

}  // namespace piper::ops
