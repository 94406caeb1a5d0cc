// One number everywhere: ONNX's ConstantOfShape.

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<std::vector<TensorType>> infer(const InferInput& in) {
  DType dtype;
  if (!ir::dtype_parse(in.attrs.s("dtype"), &dtype)) return user_error("there is no type `" + in.attrs.s("dtype") + "`");
  return std::vector<TensorType>{{dtype, in.attrs.shape("shape")}};
}

Expected<void> import(ImportContext& context) {
  const std::vector<Dim>* shape = context.known_ints(0);
  if (!shape) return user_error("its shape is not known when the model is read");
  const ValueId value = context.constant_attr("value");
  if (!value.valid()) {
    context.set_output(0, context.emit("Fill", {}, {{"shape", Shape(*shape)}, {"value", 0.0}, {"dtype", std::string("f32")}}));
    return {};
  }
  const ValueId one = context.emit("Reshape", {value}, {{"shape", Shape{}}});
  context.set_output(0, context.emit("Expand", {one}, {{"shape", Shape(*shape)}}));
  return {};
}

}  // namespace

const OpDef kFillOp = {"Fill", infer, nullptr, "it has no inputs", flops_none,
                       {{"ConstantOfShape", "", kFirstOpset, kLastOpset, import}}};

}  // namespace piper::ops
