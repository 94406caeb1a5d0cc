// Softmax cross-entropy in three ops that meet only in numbers: the loss as a sum, the number of targets that count,
// and the gradient of weight * sum / count. The count is that of the whole batch, so it is an input of the gradient.

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

const TensorType kSum{DType::kF64, {Dim(1)}};

bool is_index(DType dtype) { return dtype == DType::kI64 || dtype == DType::kI32; }

Expected<void> check(const InferInput& in) {
  const TensorType& logits = in.type(0);
  const TensorType& target = in.type(1);
  int64_t dim = normalize_dim(in.attrs.i("class_dim", -1), logits.shape.size());
  if (dim < 0 || !is_float(logits.dtype) || !logits.shape[static_cast<size_t>(dim)].is_static()) {
    return support::user_error("the logits " + to_string(logits) + " have no class dim " +
                               std::to_string(in.attrs.i("class_dim", -1)));
  }
  Shape rows = logits.shape;
  rows.erase(rows.begin() + dim);
  if (target.shape != rows || !is_index(target.dtype)) {
    return support::user_error("the targets " + to_string(target) + " are not integers of shape " + to_string(rows) +
                               ", one for each row of the logits " + to_string(logits));
  }
  return {};
}

Expected<std::vector<TensorType>> infer_loss(const InferInput& in) {
  if (auto ok = check(in); !ok) return tl::make_unexpected(ok.error());
  return std::vector<TensorType>{kSum};
}

Expected<std::vector<TensorType>> infer_grad(const InferInput& in) {
  if (auto ok = check(in); !ok) return tl::make_unexpected(ok.error());
  if (in.type(2) != kSum) return support::user_error("the count must be f64[1], not " + to_string(in.type(2)));
  return std::vector<TensorType>{in.type(0)};
}

Expected<std::vector<TensorType>> infer_count(const InferInput& in) {
  if (!is_index(in.type(0).dtype)) return support::user_error("targets " + to_string(in.type(0)) + " are not integers");
  return std::vector<TensorType>{kSum};
}

double flops_of_logits(const CostInput& in) { return 14 * static_cast<double>(ir::num_elements(in.inputs[0])); }
double flops_of_targets(const CostInput& in) { return static_cast<double>(ir::num_elements(in.inputs[0])); }

constexpr char kSeed[] = "the backward pass starts with CrossEntropyGrad, which needs the count of the whole batch";

}  // namespace

extern const OpDef kCountValidOp{
    .name = "CountValid",
    .infer = infer_count,
    .gradient = nullptr,
    .why_no_gradient = "a count of integers",
    .flops = flops_of_targets,
    .imports = {},
    .accumulates = 1,
};
extern const OpDef kCrossEntropyLossOp{
    .name = "CrossEntropyLoss",
    .infer = infer_loss,
    .gradient = nullptr,
    .why_no_gradient = kSeed,
    .flops = flops_of_logits,
    .accumulates = 1,
};
extern const OpDef kCrossEntropyGradOp{
    .name = "CrossEntropyGrad",
    .infer = infer_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_of_logits,
    .imports = {},
};

}  // namespace piper::ops
