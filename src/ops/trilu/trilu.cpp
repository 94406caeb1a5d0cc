// The upper or lower triangle of matrices, zeros elsewhere.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  if (in.type(0).shape.size() < 2) return user_error("its input is " + ir::to_string(in.type(0)) + ", not matrices");
  return infer_same_type(in);
}

void gradient(GradientBuilder& b) {
  if (b.grad(0).valid() && b.wants(0)) b.add_grad(0, b.emit("Trilu", {b.grad(0)}, b.op().attrs));
}

// A sample's place among the others decides which of its elements stay.
bool couples(const Attrs&, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return ir::sample_dim(inputs[0].shape) + 2 >= static_cast<int>(inputs[0].shape.size());
}

Expected<void> import(ImportContext& context) {
  int64_t k = 0;
  if (context.has_input(1)) {
    const std::optional<double> known = context.known_scalar(1);
    if (!known) return user_error("its diagonal is not known when the model is read");
    k = static_cast<int64_t>(*known);
  }
  context.set_output(0, context.emit("Trilu", {context.input(0)}, {{"upper", context.attrs().i("upper", 1)}, {"k", k}}));
  return {};
}

}  // namespace

const OpDef kTriluOp = {"Trilu", infer, gradient, nullptr, flops_none,
                        {{"Trilu", "", kFirstOpset, kLastOpset, import}}, 0, couples};

}  // namespace piper::ops
