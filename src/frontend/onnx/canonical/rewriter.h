// Pattern rewriting over a Model. A matcher looks at one op and, through what computes its inputs,
// at the ops before it; when it recognises them it replaces the op. Ops that nothing reads any more
// go when the pass is over, so a matcher need not care who else reads the values in between.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/model.h"

namespace piper::frontend {

class Rewriter {
 public:
  explicit Rewriter(ir::Model& model) : model_(model) {}
  // True when it has replaced the op (by calling `replace`, and returning what that returned).
  using Matcher = bool (*)(Rewriter&, const ir::Op&);
  // Runs the matcher over every op in order, then removes dead ops. Returns the number of replaced
  // ops.
  int run(Matcher match);

  const ir::Model& model() const { return model_; }
  const ir::TensorType& type(ir::ValueId id) const { return model_.value(id).type; }
  const ir::Shape& shape(ir::ValueId id) const { return type(id).shape; }
  // The op that computes a value as its first output; nullptr when no op of this kind does.
  const ir::Op* producer(ir::ValueId id, const char* kind) const;
  // The op that computes a value, whichever of its outputs it is; nullptr when none does.
  const ir::Op* producer(ir::ValueId id) const;
  // Whether exactly one op reads the value, and the model does not give it back.
  bool single_use(ir::ValueId id) const { return uses_[id.index()] == 1; }
  bool is_parameter(ir::ValueId id) const {
    return model_.value(id).kind == ir::ValueKind::kParameter;
  }
  // The number of a one-element constant.
  std::optional<double> scalar(ir::ValueId id) const;
  bool is_scalar(ir::ValueId id, double value) const;
  const ir::Constant* constant(ir::ValueId id) const;

  // Adds an op before the one being replaced; it may simplify to a value that exists. Invalid when
  // the op does not fit. `named`: whose name and path it takes, that of the replaced one by default.
  ir::ValueId emit(const char* kind, std::vector<ir::ValueId> inputs, ir::Attrs attrs,
                   const ir::Op* named = nullptr);
  // All outputs of an op that has several; none when it does not fit.
  std::vector<ir::ValueId> emit_all(const char* kind, std::vector<ir::ValueId> inputs,
                                    ir::Attrs attrs, const ir::Op* named = nullptr);
  // Puts an op in the place of `root`, with root's output as its first one. False when the op does
  // not fit or would have another type. `named`: whose name and path it takes, root's by default.
  bool replace(const ir::Op& root, const char* kind, std::vector<ir::ValueId> inputs,
               ir::Attrs attrs, const ir::Op* named = nullptr);
  // Values made once per pass, by what they were made from.
  std::map<int32_t, ir::ValueId>& memo() { return memo_; }

 private:
  ir::Model& model_;
  const ir::Op* root_ = nullptr;
  std::vector<int> uses_;
  std::vector<ir::Op> pending_;
  std::map<int32_t, ir::ValueId> memo_;
};

// Removes ops that no output depends on and sets the producers of values anew.
void sweep(ir::Model* model);
// Lets ops read one constant where several have the same type and bytes.
void merge_constants(ir::Model* model);
// Removes values, constants and parameters that no op reads and the model does not give back.
// Inputs stay.
void compact(ir::Model* model);

// Close enough to be the same number written in f32.
bool near(double a, double b);

// A value without the scalar factors it was multiplied or divided by, and their product.
struct Scaled {
  ir::ValueId value;
  double scale = 1;
};
Scaled peel_scale(const Rewriter& r, ir::ValueId value);

// A product of factors and numbers, flattened through products that nothing else reads.
struct Product {
  double scale = 1;
  std::vector<ir::ValueId> factors;
};
Product flatten_product(const Rewriter& r, ir::ValueId value);

}  // namespace piper::frontend
