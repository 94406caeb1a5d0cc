// start, start + delta, ... below limit; or `count` numbers from start, which may depend on the batch size.

#include <cmath>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  DType dtype;
  if (!ir::dtype_parse(in.attrs.s("dtype"), &dtype)) return user_error("there is no type `" + in.attrs.s("dtype") + "`");
  const double start = in.attrs.f("start"), limit = in.attrs.f("limit"), delta = in.attrs.f("delta", 1);
  if (const Shape count = in.attrs.shape("count"); !count.empty()) return std::vector<TensorType>{{dtype, count}};
  if (delta == 0) return user_error("its step is 0");
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  if (!(count <= INT32_MAX)) return user_error("it has too many elements");
  return std::vector<TensorType>{{dtype, {Dim(static_cast<int64_t>(count))}}};
}

Expected<double> number(ImportContext& context, size_t i, const char* what) {
  if (std::optional<double> known = context.known_scalar(i)) return *known;
  const std::vector<Dim>* ints = context.known_ints(i);
  if (ints && ints->size() == 1) {
    if (ints->front().is_static()) return static_cast<double>(ints->front().constant);
    return user_error(std::string("its ") + what + " depends on the batch size (" + ir::to_string(ints->front()) + ")");
  }
  return user_error(std::string("its ") + what + " is not known when the model is read");
}

// A number for each row of the batch: 0, 1, ... up to a limit that grows with it.
bool import_per_row(ImportContext& context) {
  const std::vector<Dim>* limit = context.known_ints(1);
  if (!limit || limit->size() != 1 || limit->front().is_static() || limit->front().batch < 0) return false;
  const std::optional<double> start = context.known_scalar(0), delta = context.known_scalar(2);
  if (start != 0.0 || delta != 1.0) return false;
  const std::string dtype(ir::dtype_name(context.type(context.input(0)).dtype));
  context.set_output(0, context.emit("Range", {}, {{"start", 0.0}, {"delta", 1.0}, {"count", Shape{limit->front()}}, {"dtype", dtype}}));
  return true;
}

// Where a row stands in the batch is nothing that the row itself knows.
bool couples(const Attrs&, const std::vector<TensorType>&, const std::vector<TensorType>& outputs) {
  return ir::sample_dim(outputs[0].shape) >= 0;
}

Expected<void> import(ImportContext& context) {
  if (import_per_row(context)) return {};
  Attrs attrs;
  const char* kNames[] = {"start", "limit", "delta"};
  for (size_t i = 0; i < 3; i++) {
    auto value = number(context, i, kNames[i]);
    if (!value) return tl::make_unexpected(value.error());
    attrs.set(kNames[i], *value);
  }
  attrs.set("dtype", std::string(ir::dtype_name(context.type(context.input(0)).dtype)));
  context.set_output(0, context.emit("Range", {}, attrs));
  return {};
}

}  // namespace

const OpDef kRangeOp = {"Range", infer, nullptr, "it has no inputs", flops_none,
                        {{"Range", "", kFirstOpset, kLastOpset, import}}, 0, couples};

}  // namespace piper::ops
