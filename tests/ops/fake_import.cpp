#include "tests/ops/fake_import.h"

#include <catch2/catch.hpp>

namespace piper::ops::test {

FakeImport::FakeImport(std::string op_type, int opset, Attrs attrs, std::vector<Input> inputs, size_t outputs)
    : op_type_(std::move(op_type)), opset_(opset), attrs_(std::move(attrs)), inputs_(std::move(inputs)), outputs_(outputs) {
  for (size_t i = 0; i < inputs_.size(); i++) {
    ids_.push_back(inputs_[i].present ? model.add_value("input" + std::to_string(i), inputs_[i].type, ir::ValueKind::kInput) : ValueId());
  }
}

std::string FakeImport::import() {
  const ImportRule* rule = find_import(op_type_, "", opset_);
  REQUIRE(rule != nullptr);
  auto done = rule->import(*this);
  if (!error_.empty()) return error_;
  return done ? "" : done.error().message;
}

std::vector<double> FakeImport::values(std::map<size_t, std::vector<double>> given, size_t i, int64_t batch) {
  std::map<ValueId, Tensor> tensors = constants_;
  for (size_t k = 0; k < inputs_.size(); k++) {
    if (!inputs_[k].present) continue;
    Tensor tensor = make_tensor(inputs_[k].type.dtype, ir::at(inputs_[k].type.shape, batch));
    if (inputs_[k].number) set_number(tensor, 0, *inputs_[k].number);
    for (size_t e = 0; e < given[k].size(); e++) set_number(tensor, static_cast<int64_t>(e), given[k][e]);
    tensors[ids_[k]] = tensor;
  }
  auto y = evaluate(model, tensors, std::span(&results.at(i), 1), batch);
  INFO((y ? "" : y.error().message));
  REQUIRE(y.has_value());
  std::vector<double> numbers;
  for (int64_t e = 0; e < y->front().elements(); e++) numbers.push_back(get_number(y->front(), e));
  return numbers;
}

std::vector<ValueId> FakeImport::emit_all(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs) {
  ir::Op op;
  op.kind = std::string(kind);
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  kinds.push_back(op.kind);
  auto outputs = append_op(model, std::move(op));
  if (outputs) return *outputs;
  if (error_.empty()) error_ = outputs.error().message;
  return {ids_.empty() ? model.add_value("wrong", {}, ir::ValueKind::kInput) : ids_[0]};
}

ValueId FakeImport::constant(DType dtype, double value) {
  const ValueId id = model.add_value("constant" + std::to_string(model.values.size()), {dtype, {}}, ir::ValueKind::kInput);
  Tensor tensor = make_tensor(dtype, {});
  set_number(tensor, 0, value);
  constants_[id] = tensor;
  return id;
}

}  // namespace piper::ops::test
