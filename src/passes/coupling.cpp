#include "passes/coupling.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/shares.h"
#include "ops/op.h"
#include "passes/select.h"

namespace piper::passes {

using ir::Op;
using ir::OpId;
using ir::ValueId;
using support::Code;

namespace {

constexpr const char* kTraining = "BatchNorm";
constexpr const char* kInference = "BatchNormInference";
constexpr const char* kStatistics = "BatchStatistics";  // read in the graph: of the whole batch

std::string describe(const Op& op) { return fmt::format("operation `{}` ({}, path `{}`)", op.name, op.kind, op.path); }

bool couples(const TrainingDag& dag, const Op& op) {
  const ops::OpDef* def = ops::find_op(op.kind);
  if (!def || !def->couples_samples) return false;
  std::vector<ir::TensorType> in, out;
  for (ValueId v : op.inputs) in.push_back(v.valid() ? dag.model.value(v).type : ir::TensorType{});
  for (ValueId v : op.outputs) out.push_back(dag.model.value(v).type);
  return def->couples_samples(op.attrs, in, out);
}

// The exporter wrote down the inference form of what is trained: the same inputs, with the
// statistics as state.
void to_training(ir::Model& model, OpId id) {
  Op& op = model.ops[id.index()];
  op.kind = kTraining;
  ops::InferInput in{op.attrs, {}};
  for (ValueId v : op.inputs) in.inputs.push_back(v.valid() ? &model.value(v).type : nullptr);
  const std::vector<ir::TensorType> types = *ops::find_op(kTraining)->infer(in);
  const std::string name = model.value(op.outputs[0]).name;
  for (size_t i = 1; i < types.size(); ++i) {
    const ValueId made =
        model.add_value(fmt::format("{}.{}", name, i == 1 ? "mean" : "variance"), types[i], ir::ValueKind::kComputed);
    model.value(made).producer = id;
    model.ops[id.index()].outputs.push_back(made);
  }
}

bool reads_buffers(const ir::Model& model, const Op& op) {
  return std::all_of(op.inputs.begin() + 3, op.inputs.end(),
                     [&](ValueId v) { return model.value(v).kind == ir::ValueKind::kParameter; });
}

void convert_batch_norms(TrainingDag& dag, const std::vector<char>& live, const Strategy& strategy,
                         Diagnostics& diagnostics) {
  using Form = ir::Train::BatchNorm;
  size_t fixed = 0;
  std::string example;
  for (size_t i = 0; i < dag.model.ops.size(); ++i) {
    const Op& op = dag.model.ops[i];
    if (!live[i] || op.kind != kInference) continue;
    if (!reads_buffers(dag.model, op)) {
      if (strategy.train.batch_norm != Form::kTraining) continue;
      diagnostics.report(
          Code::E0510, strategy.train.span,
          fmt::format("training {}, whose statistics are no buffers of the model, is not implemented", describe(op)));
    } else if (strategy.train.batch_norm == Form::kTraining) {
      to_training(dag.model, OpId(static_cast<int64_t>(i)));
    } else if (fixed++ == 0) {
      example = op.path.empty() ? op.name : op.path;
    }
  }
  if (fixed == 0 || strategy.train.batch_norm == Form::kAsExported) return;
  diagnostics
      .report(Code::W0501, strategy.train.span,
              fmt::format("the model has {} batch normalisation{} in inference form (`{}`{}): "
                          "statistics stay as they are in the file",
                          fixed, fixed == 1 ? "" : "s", example, fixed == 1 ? "" : ", …"))
      .help(
          "`train { batch_norm training }` normalises by the batch and advances the statistics; "
          "`batch_norm as_exported` says that fixed ones are meant");
}

// Groups of a batch normalisation: how many, and how many rows of its input are one.
void set_groups(TrainingDag& dag, Op& op, const ir::Train& train) {
  const ir::Dim rows = dag.model.value(op.inputs[0]).type.shape[0];
  const int64_t groups = train.coupled_groups > 0 && !rows.is_static() ? train.coupled_groups : 1;
  op.attrs.set("groups", groups);
  op.attrs.set("rows", rows.at(train.batch) / groups);
  for (size_t i = 3; i < op.inputs.size(); ++i) {
    const ir::Value& value = dag.model.value(op.inputs[i]);
    if (value.kind == ir::ValueKind::kParameter) dag.model.params[value.param.index()].trainable = false;
  }
}

}  // namespace

void set_coupling(TrainingDag& dag, const std::vector<char>& live, const Strategy& strategy, Diagnostics& diagnostics) {
  convert_batch_norms(dag, live, strategy, diagnostics);
  const ir::Train& train = strategy.train;
  for (size_t i = 0; i < dag.model.ops.size(); ++i) {
    Op& op = dag.model.ops[i];
    if (!live[i] || !couples(dag, op)) continue;
    const bool grouped = op.kind == kTraining;
    if (grouped && train.coupled_groups > 0 && train.batch % train.coupled_groups != 0) {
      diagnostics.report(Code::E0507, train.span,
                         fmt::format("a batch of {} samples is not {} groups of equal size "
                                     "(`coupled_groups`), as {} needs",
                                     train.batch, train.coupled_groups, describe(op)));
      return;
    }
    if (grouped && (train.coupled_groups > 0 || !cuts_batch(strategy))) {
      set_groups(dag, op, train);
    } else if (cuts_batch(strategy) || (op.kind == kStatistics && train.coupled_groups > 1)) {
      diagnostics.report(Code::E0507, describe(op) + " mixes samples, so the batch cannot be cut")
          .help(grouped ? "say over which groups of samples its statistics go, on one device too: "
                          "`train { coupled_groups G }`, each of batch / G samples"
                        : "train it with one microbatch on one device, or leave the operation out "
                          "of the exported graph");
    }
  }
}

void check_groups(const TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  const int64_t batch = strategy.train.batch, groups = strategy.train.coupled_groups;
  if (groups == 0) return;
  const int64_t size = batch / groups;
  for (const ir::Node& node : dag.nodes) {
    if (node.pass != ir::Pass::kForward) continue;
    const auto& ops = dag.chunk(node.chunk).forward;
    const auto op = std::find_if(ops.begin(), ops.end(), [&](OpId id) { return dag.model.op(id).kind == kTraining; });
    if (op == ops.end()) continue;
    const ir::Placement& placement = dag.placements[node.placement.index()];
    const auto shares = ir::cut_shares(batch, dag.microbatches, ir::data_degree(dag.mesh, placement));
    for (const ir::Interval& share : shares[static_cast<size_t>(node.microbatch)]) {
      if (share.start % size == 0 && share.count % size == 0) continue;
      diagnostics
          .report(Code::E0507, strategy.split ? strategy.split->span : strategy.train.span,
                  fmt::format("microbatch {} gives a device of {} the samples {} to {}, which are "
                              "not whole groups of {} (`coupled_groups {}` of a batch of {})",
                              node.microbatch, placement.name, share.start, share.start + share.count - 1, size, groups,
                              batch))
          .note(fmt::format("{} computes one statistic per group", describe(dag.model.op(*op))))
          .help(fmt::format("make the {} microbatches x {} replicas divide the {} groups, or use "
                            "more and smaller groups",
                            dag.microbatches, ir::data_degree(dag.mesh, placement), groups));
      return;
    }
  }
}

}  // namespace piper::passes
