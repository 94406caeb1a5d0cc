// A scalar that a model computes as its own loss, taken apart into means over samples.
#pragma once

#include <vector>

#include "ir/model.h"

namespace piper::passes {

struct ScalarTerm {
  enum class Kind {
    kMean,          // of all elements of `value`
    kCrossEntropy,  // of the CrossEntropyLoss `op`, whose logits are `value`
    kRatio,         // sum of all elements of `value` / sum of all elements of `divisor`, which depends on data alone
  };
  Kind kind = Kind::kMean;
  double weight = 1;
  ir::ValueId value;
  ir::ValueId divisor;
  ir::OpId op;
};

struct ScalarLoss {
  std::vector<ScalarTerm> terms;  // their weighted sum is the scalar
  ir::OpId coupled;               // valid: the operation where the scalar stops being a sum of such terms
};

// Takes a value of one element apart, through sums, constant factors, casts and reshapes.
ScalarLoss take_apart(const ir::Model& model, ir::ValueId scalar);

}  // namespace piper::passes
