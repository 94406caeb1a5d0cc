// An ImportContext over a plain model: a node with given attributes and inputs, some of which are known integers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/evaluate.h"
#include "ops/op.h"

namespace piper::ops::test {

class FakeImport final : public ImportContext {
 public:
  struct Input {
    bool present = true;
    ir::TensorType type = {};
    std::optional<std::vector<Dim>> ints = {};
    std::optional<double> number = {};
  };

  FakeImport(std::string op_type, int opset, Attrs attrs, std::vector<Input> inputs, size_t outputs = 1);

  static Input tensor(ir::Shape shape, DType dtype = DType::kF64) { return {.type = {dtype, std::move(shape)}}; }
  static Input ints(std::vector<Dim> values) {
    const Dim count(static_cast<int64_t>(values.size()));
    return {.type = {DType::kI64, {count}}, .ints = std::move(values)};
  }
  static Input number(double value, DType dtype = DType::kF64) { return {.type = {dtype, {}}, .number = value}; }
  static Input absent() { return {.present = false}; }

  // Runs the rule for the node; "" or the error.
  std::string import();
  const ir::TensorType& result(size_t i = 0) { return model.value(results.at(i)).type; }
  // Output i for the given tensors, number inputs filled in.
  std::vector<double> values(std::map<size_t, std::vector<double>> given, size_t i = 0, int64_t batch = 1);

  std::string_view op_type() const override { return op_type_; }
  std::string_view domain() const override { return ""; }
  int opset() const override { return opset_; }
  const Attrs& attrs() const override { return attrs_; }
  ValueId constant_attr(const std::string& name) override { return name == tensor_name ? constant(tensor_dtype, tensor_value) : ValueId(); }
  int64_t node_index() const override { return 4; }
  size_t num_inputs() const override { return inputs_.size(); }
  size_t num_outputs() const override { return outputs_; }
  bool has_input(size_t i) const override { return i < inputs_.size() && inputs_[i].present; }
  bool output_used(size_t) const override { return true; }
  ValueId input(size_t i) override { return ids_.at(i); }
  const TensorType& type(ValueId value) const override { return model.value(value).type; }
  const std::vector<Dim>* known_ints(size_t i) const override {
    return i < inputs_.size() && inputs_[i].ints ? &*inputs_[i].ints : nullptr;
  }
  std::optional<double> known_scalar(size_t i) const override { return i < inputs_.size() ? inputs_[i].number : std::nullopt; }
  ValueId emit(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs) override {
    return emit_all(kind, std::move(inputs), std::move(attrs))[0];
  }
  std::vector<ValueId> emit_all(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs) override;
  ValueId constant(DType dtype, double value) override;
  void set_output(size_t i, ValueId value) override { results[i] = value; }

  ir::Model model;
  std::map<size_t, ValueId> results;
  std::vector<std::string> kinds;  // of the ops that were emitted
  std::string tensor_name;         // of the only tensor attribute
  DType tensor_dtype = DType::kF32;
  double tensor_value = 0;

 private:
  std::string op_type_;
  int opset_;
  Attrs attrs_;
  std::vector<Input> inputs_;
  size_t outputs_;
  std::vector<ValueId> ids_;
  std::map<ValueId, Tensor> constants_;
  std::string error_;
};

}  // namespace piper::ops::test
