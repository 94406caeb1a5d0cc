// Batch normalisation of x[N, C, ...]. BatchNorm (training) normalises each channel by the mean and
// the population variance over groups of `rows` consecutive rows of dim 0: all of them, or the
// groups of `coupled_groups`. The means and variances come as [N, C], the same in all rows of a
// group, so that they have a sample dim like everything else. BatchNormInference normalises by
// given statistics.

#include <cmath>

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

Expected<void> check(const TensorType& x, std::initializer_list<const TensorType*> channels) {
  if (x.shape.size() < 2 || !ir::is_float(x.dtype) || !x.shape[1].is_static()) {
    return user_error("it normalises the channels of [N, C, ...], its input is " + ir::to_string(x));
  }
  for (size_t i = 2; i < x.shape.size(); i++) {
    if (!x.shape[i].is_static())
      return user_error("its input is " + ir::to_string(x) + ": only the first dim may depend on the batch size");
  }
  for (const TensorType* type : channels) {
    if (*type != TensorType{x.dtype, {x.shape[1]}})
      return user_error("a " + ir::to_string(*type) + " does not fit the channels of " + ir::to_string(x));
  }
  return {};
}

TensorType statistics_type(const TensorType& x) { return {x.dtype, {x.shape[0], x.shape[1]}}; }

Expected<std::vector<TensorType>> infer_training(const InferInput& in) {
  const TensorType& x = in.type(0);
  if (auto ok = check(x, {&in.type(1), &in.type(2), &in.type(3), &in.type(4)}); !ok)
    return tl::make_unexpected(ok.error());
  return std::vector<TensorType>{x, statistics_type(x), statistics_type(x)};
}

Expected<std::vector<TensorType>> infer_inference(const InferInput& in) {
  if (auto ok = check(in.type(0), {&in.type(1), &in.type(2), &in.type(3), &in.type(4)}); !ok)
    return tl::make_unexpected(ok.error());
  return std::vector<TensorType>{in.type(0)};
}

Expected<std::vector<TensorType>> infer_grad(const InferInput& in) {
  const TensorType &x = in.type(0), &scale = in.type(1);
  if (auto ok = check(x, {&scale}); !ok) return tl::make_unexpected(ok.error());
  const bool given = in.type(2) == scale && in.type(3) == scale;
  if ((!given && (in.type(2) != statistics_type(x) || in.type(3) != in.type(2))) || in.type(4) != x) {
    return user_error("BatchNormGrad: the statistics or dy do not fit x " + ir::to_string(x));
  }
  return std::vector<TensorType>{x, scale, scale};
}

Expected<std::vector<TensorType>> infer_statistics(const InferInput& in) {
  const TensorType& rows = in.type(0);
  if (rows.shape.size() != 2) return user_error("statistics are [N, C], not " + ir::to_string(rows));
  return std::vector<TensorType>{{rows.dtype, {rows.shape[1]}}};
}

void emit_gradient(GradientBuilder& g, const char* kind, ValueId mean, ValueId variance) {
  const ValueId dy = g.grad(0);
  if (!dy.valid() || !(g.wants(0) || g.wants(1) || g.wants(2))) return;
  Attrs attrs{{"eps", g.op().attrs.f("eps")}};
  if (g.op().attrs.has("rows")) attrs.set("rows", g.op().attrs.i("rows"));
  const std::vector<ValueId> grads = g.emit_all(kind, {g.input(0), g.input(1), mean, variance, dy}, attrs);
  for (size_t i = 0; i < 3; i++) {
    if (g.wants(i)) g.add_grad(i, grads[i]);
  }
}
void gradient_training(GradientBuilder& g) { emit_gradient(g, "BatchNormGrad", g.output(1), g.output(2)); }
void gradient_inference(GradientBuilder& g) { emit_gradient(g, "BatchNormInferenceGrad", g.input(3), g.input(4)); }

// r <- m^G r + sum over groups g of (1 - m) m^(G - 1 - g) stat_g: what one exponential average per
// group comes to. The sum is over the groups of the global batch, so that parts of it add up like a
// gradient.
void statistics(GradientBuilder& g) {
  const Attrs attrs{{"momentum", g.op().attrs.f("momentum")},
                    {"groups", g.op().attrs.i("groups", 1)},
                    {"rows", g.op().attrs.i("rows")},
                    {"rows_per_sample", g.type(g.input(0)).shape[0].batch}};
  g.add_grad(3, g.emit("BatchStatistics", {g.output(1)}, attrs));
  g.add_grad(4, g.emit("BatchStatistics", {g.output(2)}, attrs));
}

double flops_forward(const CostInput& in) { return 6 * flops_per_element(in); }
double flops_scale(const CostInput& in) { return 2 * flops_per_element(in); }
double flops_backward(const CostInput& in) { return 10 * flops_per_element(in); }
double flops_of_input(const CostInput& in) { return static_cast<double>(ir::num_elements(in.inputs[0])); }

// Within groups of given rows it is a matter of how the batch is cut, which is checked when that is
// known.
bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  return attrs.i("rows") == 0 && !inputs[0].shape[0].is_static();
}

Expected<void> import_batch_norm(ImportContext& c) {
  const Attrs attrs{{"eps", c.attrs().f("epsilon", 1e-5)}, {"momentum", c.attrs().f("momentum", 0.9)}};
  // Until opset 13 the number of outputs says whether a node is one of training.
  const bool training = c.opset() >= 14 ? c.attrs().i("training_mode") != 0 : c.num_outputs() > 1;
  const std::vector<ValueId> inputs{c.input(0), c.input(1), c.input(2), c.input(3), c.input(4)};
  if (!training) {
    for (size_t i = 1; i < c.num_outputs(); i++) {
      if (c.output_used(i)) return user_error("its statistics are read, but `training_mode` is 0");
    }
    c.set_output(0, c.emit("BatchNormInference", inputs, attrs));
    return {};
  }
  const std::vector<ValueId> results = c.emit_all("BatchNorm", inputs, attrs);
  c.set_output(0, results[0]);
  for (size_t i = 1; i < c.num_outputs(); i++) {
    if (!c.output_used(i)) continue;
    if (i > 2) return user_error("its saved statistics are read, which is not supported");
    // Results of the graph, next to the state that the strategy keeps.
    const ValueId now =
        c.emit("BatchStatistics", {results[i]}, {{"momentum", attrs.f("momentum")}, {"groups", int64_t{1}}});
    const ValueId kept = c.emit("Mul", {inputs[2 + i], c.constant(c.type(inputs[2 + i]).dtype, attrs.f("momentum"))});
    c.set_output(i, c.emit("Add", {kept, now}));
  }
  return {};
}

}  // namespace

extern const OpDef kBatchNormOp{
    .name = "BatchNorm",
    .infer = infer_training,
    .gradient = gradient_training,
    .why_no_gradient = nullptr,
    .flops = flops_forward,
    .imports = {{"BatchNormalization", "", 7, kLastOpset, import_batch_norm}},
    .couples_samples = couples,
    .statistics = statistics,
};
extern const OpDef kBatchNormGradOp{
    .name = "BatchNormGrad",
    .infer = infer_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_backward,
    .imports = {},
    .accumulates = 0b110,
};
extern const OpDef kBatchNormInferenceOp{
    .name = "BatchNormInference",
    .infer = infer_inference,
    .gradient = gradient_inference,
    .why_no_gradient = nullptr,
    .flops = flops_scale,
    .imports = {},
};
extern const OpDef kBatchNormInferenceGradOp{
    .name = "BatchNormInferenceGrad",
    .infer = infer_grad,
    .gradient = nullptr,
    .why_no_gradient = kBackwardOnly,
    .flops = flops_backward,
    .imports = {},
    .accumulates = 0b110,
};
extern const OpDef kBatchStatisticsOp{
    .name = "BatchStatistics",
    .infer = infer_statistics,
    .gradient = nullptr,
    .why_no_gradient = "it advances statistics, which no loss depends on",
    .flops = flops_of_input,
    .imports = {},
    .accumulates = 1,
    .couples_samples = couples,
};

}  // namespace piper::ops
