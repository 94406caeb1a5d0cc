// start, start + delta, ... below limit.

#include <cmath>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  DType dtype;
  if (!ir::dtype_parse(in.attrs.s("dtype"), &dtype)) return user_error("there is no type `" + in.attrs.s("dtype") + "`");
  const double start = in.attrs.f("start"), limit = in.attrs.f("limit"), delta = in.attrs.f("delta", 1);
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

Expected<void> import(ImportContext& context) {
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
                        {{"Range", "", kFirstOpset, kLastOpset, import}}};

}  // namespace piper::ops
