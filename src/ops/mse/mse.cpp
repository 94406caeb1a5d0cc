// Losses that are sums over elements: squared differences, and a value the model computes itself (MeanLoss). As with
// cross-entropy the gradient takes the count of the whole batch as an input.

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

const TensorType kSum{DType::kF64, {Dim(1)}};

Expected<void> same(const InferInput& in) {
  if (!is_float(in.type(0).dtype) || in.type(0) != in.type(1)) {
    return support::user_error("the prediction " + to_string(in.type(0)) + " and the target " + to_string(in.type(1)) +
                               " are not floats of one shape");
  }
  return {};
}

Expected<std::vector<TensorType>> infer_mse(const InferInput& in) {
  if (auto ok = same(in); !ok) return tl::make_unexpected(ok.error());
  return std::vector<TensorType>{kSum};
}

Expected<std::vector<TensorType>> infer_mse_grad(const InferInput& in) {
  if (auto ok = same(in); !ok) return tl::make_unexpected(ok.error());
  if (in.type(2) != kSum) return support::user_error("the count must be f64[1], not " + to_string(in.type(2)));
  return std::vector<TensorType>{in.type(0)};
}

Expected<std::vector<TensorType>> infer_mean(const InferInput& in) {
  if (!is_float(in.type(0).dtype)) return support::user_error("the mean of " + to_string(in.type(0)) + " is no loss");
  return std::vector<TensorType>{kSum};
}

Expected<std::vector<TensorType>> infer_mean_grad(const InferInput& in) {
  if (in.type(0) != kSum) return support::user_error("the count must be f64[1], not " + to_string(in.type(0)));
  DType dtype = DType::kF32;
  if (in.attrs.has("dtype") && (!ir::dtype_parse(in.attrs.s("dtype"), &dtype) || !is_float(dtype))) {
    return support::user_error("`" + in.attrs.s("dtype") + "` is not a float type");
  }
  return std::vector<TensorType>{{dtype, in.attrs.shape("shape")}};
}

Expected<std::vector<TensorType>> infer_count(const InferInput& in) {
  if (!in.present(0) && !in.attrs.has("shape")) return support::user_error("neither a tensor nor a shape to count the elements of");
  return std::vector<TensorType>{kSum};
}

double flops_of_input(const CostInput& in) { return 3 * static_cast<double>(ir::num_elements(in.inputs[0])); }

constexpr char kSeed[] = "the backward pass starts with an op that needs the count of the whole batch";
}  // namespace

extern const OpDef kMseLossOp{
    .name = "MseLoss",
    .infer = infer_mse,
    .gradient = nullptr,
    .why_no_gradient = kSeed,
    .flops = flops_of_input,
    .imports = {},
    .accumulates = 1,
};
extern const OpDef kMseGradOp{
    .name = "MseGrad",
    .infer = infer_mse_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_of_input,
    .imports = {},
};
extern const OpDef kMeanLossOp{
    .name = "MeanLoss",
    .infer = infer_mean,
    .gradient = nullptr,
    .why_no_gradient = kSeed,
    .flops = flops_of_input,
    .imports = {},
    .accumulates = 1,
};
extern const OpDef kMeanLossGradOp{
    .name = "MeanLossGrad",
    .infer = infer_mean_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_per_element,
    .imports = {},
};
extern const OpDef kCountElementsOp{
    .name = "CountElements",
    .infer = infer_count,
    .gradient = nullptr,
    .why_no_gradient = "a count",
    .flops = flops_none,
    .imports = {},
    .accumulates = 1,
};

}  // namespace piper::ops
