// Constant folding and other simplification of single ops, shared by the importer and the canonical
// rewrites.
#pragma once

#include <optional>
#include <vector>

#include "ir/model.h"
#include "support/error.h"

namespace piper::frontend {

// Folded results are kept up to this size.
constexpr int64_t kMaxFoldedBytes = int64_t{64} << 20;

// The output types of `op` by its shape rule.
support::Expected<std::vector<ir::TensorType>> infer_types(const ir::Model& model,
                                                           const ir::Op& op);

// An op that gives back its input: the input. A reshape of a reshape and a transpose of a transpose
// read the first one's input afterwards (`op` is changed).
std::optional<ir::ValueId> simplify(const ir::Model& model, ir::Op* op);

// Element i of a constant as a number.
double element(const ir::Constant& constant, size_t i);

// The number in a constant of one element, of any type; nothing for other values.
std::optional<std::vector<double>> constant_elements(const ir::Model& model, ir::ValueId id);
std::optional<double> scalar_constant(const ir::Model& model, ir::ValueId id);

// The outputs of an op that reads only constants, computed by its CPU kernel and added to the
// model; nothing when it does not, when it is too big, or when there is no kernel for it.
std::optional<std::vector<ir::ValueId>> fold(ir::Model* model, const ir::Op& op);

}  // namespace piper::frontend
