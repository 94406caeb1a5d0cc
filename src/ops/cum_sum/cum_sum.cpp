// Running sums along a dim.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  const int64_t axis = in.attrs.i("axis");
  if (normalize_dim(axis, in.type(0).shape.size()) != axis) {
    return user_error("there is no dim " + std::to_string(axis) + " in " + ir::to_string(in.type(0)));
  }
  return infer_same_type(in);
}

// An element is in the sums behind it, so its gradient is the sum of theirs: the same op from the other end.
void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  Attrs attrs = b.op().attrs;
  attrs.set("reverse", static_cast<int64_t>(attrs.i("reverse") == 0));
  b.add_grad(0, b.emit("CumSum", {b.grad(0)}, attrs));
}

bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return !inputs[0].shape[static_cast<size_t>(attrs.i("axis"))].is_static();
}

Expected<void> import(ImportContext& context) {
  const ValueId x = context.input(0);
  std::optional<double> given = context.known_scalar(1);
  if (const std::vector<Dim>* ints = context.known_ints(1); !given && ints && ints->size() == 1 && (*ints)[0].is_static()) {
    given = static_cast<double>((*ints)[0].constant);
  }
  if (!given) return user_error("its axis is not known when the model is read");
  const int64_t axis = normalize_dim(static_cast<int64_t>(*given), context.type(x).shape.size());
  if (axis < 0) return user_error("axis " + std::to_string(static_cast<int64_t>(*given)) + " is out of range for " + ir::to_string(context.type(x)));
  const Attrs& attrs = context.attrs();
  context.set_output(0, context.emit("CumSum", {x}, {{"axis", axis}, {"exclusive", attrs.i("exclusive", 0)}, {"reverse", attrs.i("reverse", 0)}}));
  return {};
}

}  // namespace

const OpDef kCumSumOp = {"CumSum", infer, gradient, nullptr, flops_per_element,
                         {{"CumSum", "", kFirstOpset, kLastOpset, import}}, 0, couples};

}  // namespace piper::ops
