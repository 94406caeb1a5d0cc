// Small integer tensors whose values are known while importing, possibly in terms of the batch
// size: what shapes are made of. Evaluating them here makes shape arithmetic disappear before any
// op exists.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/attributes.h"
#include "ir/types.h"

namespace piper::frontend {

// Larger tensors are ordinary constants.
constexpr int64_t kMaxKnownElements = 4096;

struct KnownInts {
  ir::DType dtype = ir::DType::kI64;  // kI64, kI32 or kBool
  std::vector<int64_t> shape;
  std::vector<ir::Dim> values;

  bool is_static() const;
  std::vector<int64_t> numbers() const;  // of a static one
};

// One node over known inputs; absent inputs are nullptr.
struct KnownNode {
  const std::string& op_type;
  int opset;
  const ir::Attrs& attrs;
  std::vector<const KnownInts*> inputs;
};

// The output of a node with one output, when it can be told for every batch size.
std::optional<KnownInts> evaluate_known(const KnownNode& node);
// Whether there is a rule for this operator at all.
bool can_evaluate_known(const std::string& op_type);
// Shape (with its attributes `start` and `end`) and Size of a tensor.
KnownInts known_shape(const ir::Shape& shape, const ir::Attrs& attrs);
std::optional<KnownInts> known_size(const ir::Shape& shape);

}  // namespace piper::frontend
