// The means are left as a sum and a count of the batch, so that passes/scalar_loss.h recognises them and divides by the
// count of the whole batch however it is cut. With class weights the mean divides by the sum of the weights of the
// labels, as ONNX and PyTorch do.

#include "ops/loss_import.h"

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

struct Picked {
  ValueId loss;    // [N,...]: -weight * log_prob of the label, 0 where the label does not count
  ValueId weight;  // [N,...]: what each label counts; invalid when all count 1
};

Expected<Picked> pick(ImportContext& c, ValueId log_prob) {
  const TensorType scores = c.type(log_prob);
  ValueId label = c.input(1);
  const TensorType labels = c.type(label);
  Shape rows = scores.shape;
  if (rows.size() >= 2) rows.erase(rows.begin() + 1);
  if (scores.shape.size() < 2 || labels.shape != rows) {
    return user_error("its labels " + ir::to_string(labels) + " are not one for each row of " + ir::to_string(scores) + ", whose classes are dim 1");
  }
  const ValueId zero = c.constant(scores.dtype, 0);
  ValueId counts;  // bool[N,...]
  if (c.attrs().has("ignore_index")) {
    // The ignored index need not be a class.
    const ValueId ignored = c.emit("Equal", {label, c.constant(labels.dtype, static_cast<double>(c.attrs().i("ignore_index")))});
    counts = c.emit("Not", {ignored});
    label = c.emit("Where", {counts, label, c.constant(labels.dtype, 0)});
  }
  Shape column = labels.shape;
  column.insert(column.begin() + 1, 1);
  const ValueId index = c.emit("Reshape", {label}, {{"shape", column}});
  const ValueId chosen = c.emit("GatherElements", {log_prob, index}, {{"axis", int64_t{1}}});
  Picked out;
  out.loss = c.emit("Neg", {c.emit("Reshape", {chosen}, {{"shape", labels.shape}})});
  if (c.has_input(2)) {
    out.weight = c.emit("Gather", {c.input(2), label}, {{"axis", int64_t{0}}});
    out.loss = c.emit("Mul", {out.loss, out.weight});
  }
  if (counts.valid()) {
    out.loss = c.emit("Where", {counts, out.loss, zero});
    out.weight = c.emit("Where", {counts, out.weight.valid() ? out.weight : c.constant(scores.dtype, 1), zero});
  }
  return out;
}

Attrs all_dims(const ImportContext& c, ValueId x) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < c.type(x).shape.size(); i++) axes.push_back(static_cast<int64_t>(i));
  return {{"axes", axes}, {"keepdims", int64_t{0}}};
}

Expected<void> reduce(ImportContext& c, ValueId log_prob) {
  auto picked = pick(c, log_prob);
  if (!picked) return tl::make_unexpected(picked.error());
  const std::string reduction = c.attrs().s("reduction", "mean");
  const Attrs all = all_dims(c, picked->loss);
  if (reduction == "none") {
    c.set_output(0, picked->loss);
  } else if (reduction == "sum") {
    c.set_output(0, c.emit("ReduceSum", {picked->loss}, all));
  } else if (reduction != "mean") {
    return user_error("it has no reduction `" + reduction + "`");
  } else if (!picked->weight.valid()) {
    c.set_output(0, c.emit("ReduceMean", {picked->loss}, all));
  } else {
    c.set_output(0, c.emit("Div", {c.emit("ReduceSum", {picked->loss}, all), c.emit("ReduceSum", {picked->weight}, all)}));
  }
  return {};
}

// The mean over the labels that count, by the fused operation.
void fused_mean(ImportContext& c) {
  // Without `ignore_index` every label counts; this one is no class.
  const int64_t ignore_index = c.attrs().i("ignore_index", INT64_MIN);
  const ValueId sum = c.emit("CrossEntropyLoss", {c.input(0), c.input(1)},
                             {{"class_dim", int64_t{1}}, {"ignore_index", ignore_index}, {"label_smoothing", 0.0}});
  const ValueId count = c.emit("CountValid", {c.input(1)}, {{"ignore_index", ignore_index}});
  const std::string dtype(ir::dtype_name(c.type(c.input(0)).dtype));
  const ValueId mean = c.emit("Cast", {c.emit("Div", {sum, count})}, {{"to", dtype}});
  c.set_output(0, c.emit("Reshape", {mean}, {{"shape", Shape{}}}));
}

}  // namespace

Expected<void> import_softmax_cross_entropy(ImportContext& c) {
  const bool log_prob_used = c.num_outputs() > 1 && c.output_used(1);
  if (c.attrs().s("reduction", "mean") == "mean" && !c.has_input(2) && !log_prob_used) {
    fused_mean(c);
    return {};
  }
  const ValueId log_prob = c.emit("LogSoftmax", {c.input(0)}, {{"axis", int64_t{1}}});
  if (log_prob_used) c.set_output(1, log_prob);
  return reduce(c, log_prob);
}

Expected<void> import_negative_log_likelihood(ImportContext& c) { return reduce(c, c.input(0)); }

}  // namespace piper::ops
