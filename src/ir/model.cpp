#include "ir/model.h"

#include "support/error.h"

namespace piper::ir {

ValueId Model::add_value(std::string name, TensorType type, ValueKind kind) {
  ValueId id(static_cast<int64_t>(values.size()));
  Value value;
  value.name = std::move(name);
  value.type = std::move(type);
  value.kind = kind;
  values.push_back(std::move(value));
  return id;
}

OpId Model::add_op(Op op, const std::vector<TensorType>& output_types) {
  OpId id(static_cast<int64_t>(ops.size()));
  const std::string base = op.name.empty() ? op.kind + "_" + std::to_string(id.value) : op.name;
  for (size_t i = 0; i < output_types.size(); i++) {
    std::string name = output_types.size() == 1 ? base : base + "." + std::to_string(i);
    ValueId out = add_value(std::move(name), output_types[i], ValueKind::kComputed);
    value(out).producer = id;
    op.outputs.push_back(out);
  }
  ops.push_back(std::move(op));
  return id;
}

ValueId Model::add_constant(std::string name, TensorType type, std::vector<std::byte> bytes) {
  Dim count = num_elements(type.shape);
  PIPER_CHECK(count.is_static(), "constant " + name + " has a shape that depends on the batch");
  PIPER_CHECK(static_cast<int64_t>(bytes.size()) == count.constant * dtype_size(type.dtype),
              "constant " + name + " has the wrong number of bytes");
  ValueId id = add_value(std::move(name), type, ValueKind::kConstant);
  value(id).constant = static_cast<int32_t>(constants.size());
  constants.push_back(Constant{std::move(type), std::move(bytes)});
  return id;
}

std::vector<std::vector<OpId>> Model::consumers() const {
  std::vector<std::vector<OpId>> users(values.size());
  for (size_t i = 0; i < ops.size(); i++) {
    for (ValueId in : ops[i].inputs) {
      if (in.valid()) users[in.index()].push_back(OpId(static_cast<int64_t>(i)));
    }
  }
  return users;
}

namespace {

std::string reference(const Model& model, ValueId id) {
  if (!id.valid()) return "_";
  const Value& value = model.value(id);
  if (value.kind == ValueKind::kComputed) return "%" + std::to_string(id.value);
  if (value.kind == ValueKind::kParameter && value.param.valid()) return model.params[value.param.index()].name;
  return value.name;
}

}  // namespace

std::string to_string(const Model& model) {
  std::string text;
  for (ValueId id : model.inputs) {
    text += "input " + model.value(id).name + ": " + to_string(model.value(id).type) + "\n";
  }
  for (const Parameter& param : model.params) {
    text += (param.is_buffer ? "buffer " : param.trainable ? "param " : "frozen ") + param.name + ": " +
            to_string(param.type) + "\n";
  }
  for (const Op& op : model.ops) {
    for (size_t i = 0; i < op.outputs.size(); i++) {
      text += (i > 0 ? ", " : "") + reference(model, op.outputs[i]) + ":" + to_string(model.value(op.outputs[i]).type);
    }
    text += " = " + op.kind + "(";
    for (size_t i = 0; i < op.inputs.size(); i++) text += (i > 0 ? ", " : "") + reference(model, op.inputs[i]);
    text += ")";
    if (std::string attrs = to_string(op.attrs); !attrs.empty()) text += " " + attrs;
    if (!op.path.empty()) text += "  # " + op.path;
    text += "\n";
  }
  for (ValueId id : model.outputs) {
    text += "output " + model.value(id).name + " = " + reference(model, id) + "\n";
  }
  return text;
}

}  // namespace piper::ir
