// Another element type.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  DType to;
  if (!ir::dtype_parse(in.attrs.s("to"), &to)) return user_error("there is no type `" + in.attrs.s("to") + "`");
  return std::vector<TensorType>{{to, in.type(0).shape}};
}

void gradient(GradientBuilder& b) {
  if (!b.grad(0).valid() || !b.wants(0)) return;
  b.add_grad(0, b.emit("Cast", {b.grad(0)}, {{"to", std::string(ir::dtype_name(b.type(b.input(0)).dtype))}}));
}

// The numbers of TensorProto.DataType.
Expected<DType> dtype_of(int64_t onnx_type) {
  switch (onnx_type) {
    case 1: return DType::kF32;
    case 2: return DType::kU8;
    case 6: return DType::kI32;
    case 7: return DType::kI64;
    case 9: return DType::kBool;
    case 11: return DType::kF64;
    case 16: return DType::kBF16;
    case 10: return user_error("it casts to float16, which Piper does not have", "export the model in f32; `precision` chooses what is computed in");
    default: return user_error("it casts to a type that Piper does not have (" + std::to_string(onnx_type) + ")");
  }
}

void emit_cast(ImportContext& context, DType to) {
  const ValueId x = context.input(0);
  const bool same = context.type(x).dtype == to;
  context.set_output(0, same ? x : context.emit("Cast", {x}, {{"to", std::string(ir::dtype_name(to))}}));
}

Expected<void> import_cast(ImportContext& context) {
  auto to = dtype_of(context.attrs().i("to"));
  if (!to) return tl::make_unexpected(to.error());
  emit_cast(context, *to);
  return {};
}

Expected<void> import_cast_like(ImportContext& context) {
  emit_cast(context, context.type(context.input(1)).dtype);
  return {};
}

}  // namespace

const OpDef kCastOp = {"Cast", infer, gradient, nullptr, flops_none,
                       {{"Cast", "", kFirstOpset, kLastOpset, import_cast},
                        {"CastLike", "", kFirstOpset, kLastOpset, import_cast_like}}};

}  // namespace piper::ops
