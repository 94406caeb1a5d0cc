// Resize as one linear resampling per dim that changes: y = R x along `axis`, where a row of R has
// one (nearest), two (linear) or four (cubic) weights. Its gradient is the transpose.

#include <cmath>

#include "ops/import_helpers.h"
#include "ops/window_import.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer_along(const InferInput& in, const char* before, const char* after) {
  TensorType y = in.type(0);
  const size_t axis = static_cast<size_t>(in.attrs.i("axis"));
  if (!ir::is_float(y.dtype) || axis >= y.shape.size() || y.shape[axis] != Dim(in.attrs.i(before)) ||
      in.attrs.i(after) < 1) {
    return user_error("it resamples dim " + std::to_string(axis) + " of " + ir::to_string(y) + " to " +
                      std::to_string(in.attrs.i(after)));
  }
  y.shape[axis] = in.attrs.i(after);
  return std::vector<TensorType>{y};
}
Expected<std::vector<TensorType>> infer_resample(const InferInput& in) { return infer_along(in, "from", "to"); }
Expected<std::vector<TensorType>> infer_grad(const InferInput& in) { return infer_along(in, "to", "from"); }

void gradient(GradientBuilder& g) {
  if (g.grad(0).valid() && g.wants(0)) g.add_grad(0, g.emit("ResampleGrad", {g.grad(0)}, g.op().attrs));
}

double flops_per_weight(const CostInput& in) {
  const std::string mode = in.attrs.s("mode");
  const double weights = mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  const bool back = in.inputs[0][static_cast<size_t>(in.attrs.i("axis"))] == in.attrs.i("to");
  return 2 * weights * static_cast<double>(ir::num_elements(back ? in.inputs[0] : in.outputs[0]));
}

// The axes that scales or sizes speak of.
Expected<std::vector<int64_t>> resized_axes(ImportContext& c, size_t rank) {
  std::vector<int64_t> axes = c.attrs().ints("axes");
  if (axes.empty()) {
    for (size_t i = 0; i < rank; i++) axes.push_back(static_cast<int64_t>(i));
  }
  for (int64_t& axis : axes) {
    axis = normalize_dim(axis, rank);
    if (axis < 0) return user_error("its axes do not fit a tensor with " + std::to_string(rank) + " dims");
  }
  return axes;
}

struct Change {
  int64_t axis = 0, from = 0, to = 0;
  double scale = 1;
};

Expected<std::vector<Change>> changes(ImportContext& c, size_t scales_at, size_t sizes_at) {
  const Shape shape = c.type(c.input(0)).shape;
  auto axes = resized_axes(c, shape.size());
  if (!axes) return tl::make_unexpected(axes.error());
  const std::vector<Dim>* sizes = c.has_input(sizes_at) ? c.known_ints(sizes_at) : nullptr;
  const std::optional<std::vector<double>> scales = c.has_input(scales_at) ? c.known_floats(scales_at) : std::nullopt;
  const bool by_size = sizes != nullptr && !sizes->empty(), by_scale = !by_size && scales && !scales->empty();
  if (!by_size && !by_scale) return user_error("neither its scales nor its sizes are known when the model is read");
  if ((by_size ? sizes->size() : scales->size()) != axes->size())
    return user_error("its scales or sizes do not fit " + ir::to_string(shape));
  std::vector<Change> found;
  for (size_t i = 0; i < axes->size(); i++) {
    const Dim from = shape[static_cast<size_t>((*axes)[i])];
    if (by_size ? (*sizes)[i] == from : (*scales)[i] == 1) continue;
    if (!from.is_static() || (by_size && !(*sizes)[i].is_static()))
      return user_error("it resizes a dim that depends on the batch size: " + ir::to_string(shape));
    Change change{(*axes)[i], from.constant, 0, 1};
    change.scale =
        by_size ? static_cast<double>((*sizes)[i].constant) / static_cast<double>(from.constant) : (*scales)[i];
    const double to = by_size ? static_cast<double>((*sizes)[i].constant)
                              : std::floor(static_cast<double>(from.constant) * change.scale);
    if (!(to >= 1 && to <= static_cast<double>(kLargestSize))) {
      return user_error("it resizes a dim of " + std::to_string(from.constant) + " to " +
                        (to < 1 ? "nothing" : "too much"));
    }
    change.to = static_cast<int64_t>(to);
    found.push_back(change);
  }
  return found;
}

Expected<void> emit_changes(ImportContext& c, const std::vector<Change>& list, const Attrs& how) {
  ValueId x = c.input(0);
  for (const Change& change : list) {
    Attrs attrs = how;
    attrs.set("axis", change.axis);
    attrs.set("from", change.from);
    attrs.set("to", change.to);
    attrs.set("scale", change.scale);
    x = c.emit("Resample", {x}, attrs);
  }
  c.set_output(0, x);
  return {};
}

Expected<void> check_mode(const std::string& mode) {
  if (mode == "nearest" || mode == "linear" || mode == "cubic") return {};
  return user_error("its mode is `" + mode + "`");
}

Expected<void> import_resize(ImportContext& c) {
  const Attrs& attrs = c.attrs();
  const std::string mode = attrs.s("mode", "nearest"), nearest = attrs.s("nearest_mode", "round_prefer_floor");
  const std::string coordinates = attrs.s("coordinate_transformation_mode", "half_pixel");
  if (auto ok = check_mode(mode); !ok) return ok;
  bool known = false;
  for (const char* name : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                           "tf_half_pixel_for_nn"}) {
    known = known || coordinates == name;
  }
  if (!known) return user_error("its coordinate_transformation_mode is `" + coordinates + "`");
  known = false;
  for (const char* name : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"})
    known = known || nearest == name;
  if (!known) return user_error("its nearest_mode is `" + nearest + "`");
  if (attrs.i("antialias") != 0) return user_error("it resizes with `antialias`, which is not supported");
  if (attrs.s("keep_aspect_ratio_policy", "stretch") != "stretch")
    return user_error("its keep_aspect_ratio_policy is not `stretch`");
  auto list = changes(c, 2, 3);
  if (!list) return tl::make_unexpected(list.error());
  return emit_changes(c, *list,
                      {{"mode", mode},
                       {"coordinates", coordinates},
                       {"nearest", nearest},
                       {"cubic_a", attrs.f("cubic_coeff_a", -0.75)},
                       {"exclude_outside", attrs.i("exclude_outside")}});
}

// Before opset 11 there was one way to place samples.
Expected<void> import_upsample(ImportContext& c) {
  const std::string mode = c.attrs().s("mode", "nearest");
  if (auto ok = check_mode(mode); !ok) return ok;
  auto list = changes(c, 1, 2);
  if (!list) return tl::make_unexpected(list.error());
  return emit_changes(c, *list,
                      {{"mode", mode}, {"coordinates", std::string("asymmetric")}, {"nearest", std::string("floor")}});
}

}  // namespace

const OpDef kResampleOp = {"Resample",
                           infer_resample,
                           gradient,
                           nullptr,
                           flops_per_weight,
                           {{"Resize", "", 11, kLastOpset, import_resize},
                            {"Resize", "", 10, 10, import_upsample},
                            {"Upsample", "", 9, 9, import_upsample}}};
const OpDef kResampleGradOp = {"ResampleGrad", infer_grad, nullptr, kBackwardOnly, flops_per_weight, {}};

}  // namespace piper::ops
