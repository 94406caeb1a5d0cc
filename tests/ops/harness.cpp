#include "tests/ops/harness.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

namespace piper::ops::test {

using ir::DType;

namespace {

ir::Shape static_shape(const std::vector<int64_t>& shape) { return ir::Shape(shape.begin(), shape.end()); }

DType run_dtype(const CaseInput& input, DType real) {
  return input.dtype == DType::kF64 && !input.keep_f64 ? real : input.dtype;
}

Tensor draw(const CaseInput& input, DType dtype, std::mt19937_64& random) {
  Tensor tensor = make_tensor(dtype, input.shape);
  std::uniform_real_distribution<double> uniform(input.low, input.high);
  if (!input.values.empty()) REQUIRE(static_cast<int64_t>(input.values.size()) == tensor.elements());
  for (int64_t i = 0; i < tensor.elements(); i++) {
    // Drawn also where it is not needed, so that all types see the same values.
    double value = uniform(random);
    if (!ir::is_float(dtype)) value = std::floor(value);
    if (!input.values.empty()) value = input.values[static_cast<size_t>(i)];
    set_number(tensor, i, ir::is_float(dtype) && !input.keep_f64 ? static_cast<double>(static_cast<float>(value)) : value);
  }
  return tensor;
}

}  // namespace

std::vector<Tensor> inputs_of(const OpCase& c, DType real) {
  std::mt19937_64 random(std::hash<std::string>()(c.op + c.name));
  std::vector<Tensor> tensors;
  for (const CaseInput& input : c.inputs) {
    tensors.push_back(input.present ? draw(input, run_dtype(input, real), random) : Tensor{});
  }
  return tensors;
}

std::vector<const Tensor*> pointers(const OpCase& c, const std::vector<Tensor>& inputs) {
  std::vector<const Tensor*> all;
  for (size_t i = 0; i < inputs.size(); i++) all.push_back(c.inputs[i].present ? &inputs[i] : nullptr);
  return all;
}

ir::TensorType type_of(const Tensor& tensor) { return {tensor.dtype, static_shape(tensor.shape)}; }

std::vector<ir::TensorType> output_types(const OpCase& c, const std::vector<Tensor>& inputs) {
  const OpDef* def = find_op(c.op);
  REQUIRE(def != nullptr);
  std::vector<ir::TensorType> types;
  for (const Tensor& tensor : inputs) types.push_back(type_of(tensor));
  InferInput in{c.attrs, {}};
  for (size_t i = 0; i < inputs.size(); i++) in.inputs.push_back(c.inputs[i].present ? &types[i] : nullptr);
  auto result = def->infer(in);
  INFO((result ? "" : result.error().message));
  REQUIRE(result.has_value());
  return *result;
}

std::vector<Tensor> run_case(const OpCase& c, const std::vector<Tensor>& inputs, RunOptions options) {
  KernelSpec spec{c.op, options.attrs, {}, {}};
  std::vector<const void*> in;
  for (const Tensor* tensor : pointers(c, inputs)) {
    spec.inputs.push_back(tensor ? TensorDesc{true, tensor->dtype, tensor->shape} : TensorDesc{false, {}, {}});
    in.push_back(tensor ? tensor->bytes.data() : nullptr);
  }
  std::vector<Tensor> outputs = std::move(options.outputs);
  const int64_t accumulate = options.attrs.i("accumulate", 0);
  if (outputs.empty()) {
    for (const ir::TensorType& type : output_types(c, inputs)) {
      outputs.push_back(make_tensor(type.dtype, ir::at(type.shape, 1)));
      std::vector<std::byte>& bytes = outputs.back().bytes;
      if (!(accumulate >> (outputs.size() - 1) & 1) && !bytes.empty()) std::memset(bytes.data(), 0xA5, bytes.size());
    }
  }
  std::vector<void*> out;
  for (Tensor& tensor : outputs) {
    spec.outputs.push_back(TensorDesc{true, tensor.dtype, tensor.shape});
    out.push_back(tensor.bytes.data());
  }
  std::unique_ptr<Kernel> kernel = make_cpu_kernel(spec);
  REQUIRE(kernel != nullptr);
  std::vector<std::byte> scratch(kernel->scratch_bytes() + 64, std::byte{0xA5});
  RunContext context = options.context;
  context.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  kernel->run(in.data(), out.data(), context);
  return outputs;
}

std::vector<Tensor> run_case(const OpCase& c, const std::vector<Tensor>& inputs) {
  return run_case(c, inputs, RunOptions{.attrs = c.attrs});
}

std::vector<ValueId> RuleRunner::emit_all(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs) {
  ir::Op op;
  op.kind = std::string(kind);
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  auto outputs = append_op(model_, std::move(op));
  INFO(kind << ": " << (outputs ? "" : outputs.error().message));
  REQUIRE(outputs.has_value());
  return *outputs;
}

void RuleRunner::add_grad(size_t i, ValueId gradient) {
  REQUIRE(wants(i));
  CHECK(type(gradient) == type(op_.inputs[i]));
  gradients_[i] = gradients_[i].valid() ? emit("Add", {gradients_[i], gradient}, {}) : gradient;
}

CaseModel model_of(const OpCase& c, const std::vector<Tensor>& inputs) {
  CaseModel result;
  ir::Op op;
  op.kind = c.op;
  op.attrs = c.attrs;
  for (size_t i = 0; i < inputs.size(); i++) {
    ValueId id;
    if (c.inputs[i].present) id = result.model.add_value("input" + std::to_string(i), type_of(inputs[i]), ir::ValueKind::kInput);
    result.inputs.push_back(id);
  }
  op.inputs = result.inputs;
  auto outputs = append_op(result.model, std::move(op));
  REQUIRE(outputs.has_value());
  result.op = ir::OpId(0);
  return result;
}

}  // namespace piper::ops::test
