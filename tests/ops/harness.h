// Running the cases of ops: tensors from a case, kernels on buffers that hold rubbish, models and gradients from rules.
#pragma once

#include <string>
#include <vector>

#include "ops/case.h"
#include "ops/evaluate.h"
#include "ops/op.h"

namespace piper::ops::test {

// The inputs of a case (empty tensors where absent), drawn from its name; floats hold f32 values, as `real`.
std::vector<Tensor> inputs_of(const OpCase& c, ir::DType real);
std::vector<const Tensor*> pointers(const OpCase& c, const std::vector<Tensor>& inputs);
std::vector<ir::TensorType> output_types(const OpCase& c, const std::vector<Tensor>& inputs);
ir::TensorType type_of(const Tensor& tensor);

// Seed and step that cases run under.
inline const RunContext kContext{.seed = 3, .step = 2};

struct RunOptions {
  ir::Attrs attrs;               // the case's, or changed
  std::vector<Tensor> outputs;   // what is in the buffers before; empty: rubbish, zeros where the op accumulates
  RunContext context = kContext;
};
// Runs the case's kernel; fails the test when there is none.
std::vector<Tensor> run_case(const OpCase& c, const std::vector<Tensor>& inputs, RunOptions options);
std::vector<Tensor> run_case(const OpCase& c, const std::vector<Tensor>& inputs);

// A rule's view of one op in a model: the loss is the sum of `seed` times output 0.
class RuleRunner final : public GradientBuilder {
 public:
  RuleRunner(ir::Model& model, ir::OpId op, ValueId seed, std::vector<bool> wanted)
      : model_(model), op_(model.op(op)), seed_(seed), wanted_(std::move(wanted)), gradients_(op_.inputs.size()) {}

  const ir::Op& op() const override { return op_; }
  const TensorType& type(ValueId value) const override { return model_.value(value).type; }
  ValueId grad(size_t i) const override { return i == 0 ? seed_ : ValueId(); }
  bool wants(size_t i) const override { return i < wanted_.size() && wanted_[i]; }
  ValueId emit(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs) override {
    return emit_all(kind, std::move(inputs), std::move(attrs))[0];
  }
  std::vector<ValueId> emit_all(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs) override;
  void add_grad(size_t i, ValueId gradient) override;

  ValueId gradient(size_t i) const { return gradients_[i]; }

 private:
  ir::Model& model_;
  const ir::Op op_;
  ValueId seed_;
  std::vector<bool> wanted_;
  std::vector<ValueId> gradients_;
};

// A model of one op whose inputs are the case's.
struct CaseModel {
  ir::Model model;
  std::vector<ValueId> inputs;
  ir::OpId op;
};
CaseModel model_of(const OpCase& c, const std::vector<Tensor>& inputs);

}  // namespace piper::ops::test
