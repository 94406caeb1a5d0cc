// Elements zeroed at random. The mask is not kept: it is a function of (seed, step, key of the op, global sample, element
// within the sample), so the backward pass applies the same op to the gradient.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  if (!ir::is_float(in.type(0).dtype)) return user_error("its input is " + ir::to_string(in.type(0)));
  return infer_same_type(in);
}

void gradient(GradientBuilder& b) {
  if (b.grad(0).valid() && b.wants(0)) b.add_grad(0, b.emit("Dropout", {b.grad(0)}, b.op().attrs));
}

// Where a sample's elements are: [outer, samples, inner].
Expected<void> set_extents(const TensorType& x, Attrs* attrs) {
  int64_t outer = 1, inner = 0;
  if (const int dim = ir::sample_dim(x.shape); dim >= 0) {
    const Dim size = x.shape[static_cast<size_t>(dim)];
    if (size.constant != 0) return user_error("its input is " + ir::to_string(x) + ", whose samples are not of one size");
    outer = static_elements_before(x.shape, static_cast<size_t>(dim));
    inner = size.batch;
    for (size_t i = static_cast<size_t>(dim) + 1; i < x.shape.size(); i++) inner *= x.shape[i].constant;
  }
  attrs->set("outer", outer);
  attrs->set("inner", inner);
  return {};
}

Expected<void> import(ImportContext& context) {
  const ValueId x = context.input(0);
  double ratio = context.attrs().f("ratio", 0.5);  // until opset 11, where a dropout is always one of inference
  bool training = false;
  if (context.has_input(1)) {
    const std::optional<double> known = context.known_scalar(1);
    if (!known) return user_error("its ratio is not known when the model is read");
    ratio = *known;
  }
  if (context.has_input(2)) {
    const std::optional<double> known = context.known_scalar(2);
    if (!known) return user_error("its training mode is not known when the model is read");
    training = *known != 0;
  }
  if (!(ratio >= 0 && ratio < 1)) return user_error("its ratio is " + std::to_string(ratio) + ", not in [0, 1)");
  if (context.num_outputs() > 1 && context.output_used(1)) return user_error("its mask is read, which is not supported");
  if (!training || ratio == 0) {
    context.set_output(0, x);
    return {};
  }
  // Two dropouts may have the same `seed` attribute; their masks must differ nevertheless.
  const int64_t key = context.node_index() + (context.attrs().i("seed", 0) << 20);
  Attrs attrs{{"ratio", ratio}, {"key", key}};
  if (auto ok = set_extents(context.type(x), &attrs); !ok) return ok;
  context.set_output(0, context.emit("Dropout", {x}, attrs));
  return {};
}

}  // namespace

const OpDef kDropoutOp = {"Dropout", infer, gradient, nullptr, flops_per_element,
                          {{"Dropout", "", kFirstOpset, kLastOpset, import}}};

}  // namespace piper::ops
