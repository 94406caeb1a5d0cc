#include "frontend/onnx/fold.h"

#include <cstring>

#include "ops/evaluate.h"
#include "ops/op.h"

namespace piper::frontend {

using ir::Model;
using ir::Op;
using ir::Shape;
using ir::TensorType;
using ir::ValueId;

support::Expected<std::vector<TensorType>> infer_types(const Model& model, const Op& op) {
  const ops::OpDef* def = ops::find_op(op.kind);
  if (def == nullptr) return support::user_error("there is no operation `" + op.kind + "`");
  ops::InferInput in{op.attrs, {}};
  for (ValueId id : op.inputs) in.inputs.push_back(id.valid() ? &model.value(id).type : nullptr);
  return def->infer(in);
}

namespace {

const Op* producer(const Model& model, ValueId id, const char* kind) {
  const ir::Value& value = model.value(id);
  if (value.kind != ir::ValueKind::kComputed || !value.producer.valid()) return nullptr;
  const Op& op = model.op(value.producer);
  return op.kind == kind ? &op : nullptr;
}

bool all_equal(const std::vector<int64_t>& values, int64_t expected) {
  for (int64_t v : values) {
    if (v != expected) return false;
  }
  return true;
}

bool is_no_op(const Model& model, const Op& op) {
  const TensorType& type = model.value(op.inputs[0]).type;
  if (op.kind == "Identity") return true;
  if (op.kind == "Cast") return op.attrs.s("to") == ir::dtype_name(type.dtype);
  if (op.kind == "Reshape" || op.kind == "Expand") return op.attrs.shape("shape") == type.shape;
  if (op.kind == "Concat") return op.inputs.size() == 1;
  if (op.kind == "Slice") {
    return op.attrs.shape("shape") == type.shape && all_equal(op.attrs.ints("starts"), 0) &&
           all_equal(op.attrs.ints("steps"), 1);
  }
  if (op.kind == "Transpose") {
    const std::vector<int64_t> perm = op.attrs.ints("perm");
    for (size_t i = 0; i < perm.size(); i++) {
      if (perm[i] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }
  return false;
}

template <class T>
T read(const ir::Constant& constant, size_t i) {
  T value;
  std::memcpy(&value, constant.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

bool is_random(const Op& op) { return op.kind == "Dropout"; }

}  // namespace

std::optional<ValueId> simplify(const Model& model, Op* op) {
  if (op->inputs.empty() || !op->inputs[0].valid()) return std::nullopt;
  if (op->kind == "Reshape") {
    while (const Op* first = producer(model, op->inputs[0], "Reshape"))
      op->inputs[0] = first->inputs[0];
  }
  if (op->kind == "Transpose") {
    while (const Op* first = producer(model, op->inputs[0], "Transpose")) {
      const std::vector<int64_t> inner = first->attrs.ints("perm");
      std::vector<int64_t> perm = op->attrs.ints("perm");
      for (int64_t& p : perm) p = inner[p];
      op->attrs.set("perm", perm);
      op->inputs[0] = first->inputs[0];
    }
  }
  return is_no_op(model, *op) ? std::optional<ValueId>(op->inputs[0]) : std::nullopt;
}

double element(const ir::Constant& constant, size_t i) {
  switch (constant.type.dtype) {
    case ir::DType::kF32:
      return read<float>(constant, i);
    case ir::DType::kF64:
      return read<double>(constant, i);
    case ir::DType::kI64:
      return static_cast<double>(read<int64_t>(constant, i));
    case ir::DType::kI32:
      return read<int32_t>(constant, i);
    case ir::DType::kBool:
    case ir::DType::kU8:
      return read<uint8_t>(constant, i);
    case ir::DType::kBF16:
      break;
  }
  const uint32_t bits = static_cast<uint32_t>(read<uint16_t>(constant, i)) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::optional<double> scalar_constant(const Model& model, ValueId id) {
  const ir::Value& value = model.value(id);
  if (value.kind != ir::ValueKind::kConstant || ir::num_elements(value.type.shape) != ir::Dim(1))
    return std::nullopt;
  return element(model.constants[static_cast<size_t>(value.constant)], 0);
}

std::optional<std::vector<double>> constant_elements(const Model& model, ValueId id) {
  const ir::Value& value = model.value(id);
  if (value.kind != ir::ValueKind::kConstant) return std::nullopt;
  std::vector<double> elements;
  for (int64_t i = 0; i < ir::num_elements(value.type.shape).constant; i++) {
    elements.push_back(element(model.constants[static_cast<size_t>(value.constant)], i));
  }
  return elements;
}

std::optional<std::vector<ValueId>> fold(Model* model, const Op& op) {
  if (is_random(op)) return std::nullopt;
  for (ValueId id : op.inputs) {
    if (id.valid() && model->value(id).kind != ir::ValueKind::kConstant) return std::nullopt;
  }
  auto types = infer_types(*model, op);
  if (!types) return std::nullopt;
  for (const TensorType& type : *types) {
    for (ir::Dim dim : type.shape) {
      if (!dim.is_static()) return std::nullopt;
    }
    if (ir::num_elements(type.shape).constant * ir::dtype_size(type.dtype) > kMaxFoldedBytes)
      return std::nullopt;
  }
  std::vector<ops::Tensor> inputs;
  inputs.reserve(op.inputs.size());
  std::vector<const ops::Tensor*> in;
  for (ValueId id : op.inputs) {
    if (id.valid()) {
      const ir::Constant& constant =
          model->constants[static_cast<size_t>(model->value(id).constant)];
      inputs.push_back({constant.type.dtype, ir::at(constant.type.shape, 1), constant.bytes});
    }
    in.push_back(id.valid() ? &inputs.back() : nullptr);
  }
  auto results = ops::run_kernel(op.kind, op.attrs, in, *types);
  if (!results) return std::nullopt;
  std::vector<ValueId> values;
  for (size_t i = 0; i < results->size(); i++) {
    values.push_back(model->add_constant("folded_" + std::to_string(model->values.size()),
                                         (*types)[i], std::move((*results)[i].bytes)));
  }
  return values;
}

}  // namespace piper::frontend
