// What import rules of several folders share.
#pragma once

#include <climits>
#include <string>
#include <vector>

#include "ops/op.h"

namespace piper::ops {

// Import rules start here, where PyTorch's exporter and tf2onnx did; what newer opsets changed is told apart inside the
// rules.
constexpr int kFirstOpset = 9;
constexpr int kLastOpset = INT_MAX;

// A rule for an ONNX op whose canonical op has the same name, inputs and no attributes.
Expected<void> import_same(ImportContext& context);
ImportRule same_name_rule(const char* op_type);

// The integers of input i, which must be known and must not depend on the batch size; `what` names them in the error.
Expected<std::vector<int64_t>> static_ints(ImportContext& context, size_t i, const std::string& what);

// The axes of an op that has them as attribute in old opsets and as input i in new ones: normalised, sorted, unique.
// Not given: empty, and *given (when asked for) is false.
Expected<std::vector<int64_t>> import_axes(ImportContext& context, size_t i, size_t rank, bool* given = nullptr);
Expected<int64_t> import_axis(ImportContext& context, int64_t otherwise, size_t rank);

// Number of elements; an error when two dims depend on the batch size.
Expected<Dim> count_elements(const Shape& shape);

// The product of two dims, at most one of which depends on the batch size.
Expected<Dim> multiply(Dim a, Dim b);
// Product of the dims before i, which must not depend on the batch size (0 then).
int64_t static_elements_before(const Shape& shape, size_t i);

// Rules that follow from the types alone.
Expected<std::vector<TensorType>> infer_same_type(const InferInput& in);

// In a gradient rule: a tensor of one value; one value of rank 0; a gradient times a number.
ValueId filled(GradientBuilder& builder, const TensorType& type, double value);
ValueId scalar(GradientBuilder& builder, DType dtype, double value);
ValueId scaled(GradientBuilder& builder, ValueId value, double factor);

// Why an op that only appears in backward passes has no gradient.
constexpr const char* kBackwardOnly = "part of a backward pass, which is not differentiated again";
constexpr const char* kIntegerResult = "the result is not a real number";

}  // namespace piper::ops
