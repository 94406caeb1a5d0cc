#include "passes/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "ops/op.h"
#include "passes/scalar_loss.h"
#include "passes/select.h"
#include "support/strings.h"

namespace piper::passes {

using ir::LossTerm;
using ir::Op;
using ir::OpId;
using ir::Tags;
using ir::ValueId;
using ir::ValueKind;
using support::Code;

namespace {

ValueId find_output(const TrainingDag& dag, const LossTerm& term, Diagnostics& diagnostics) {
  std::vector<std::string> names;
  for (ValueId v : dag.model.outputs) {
    if (dag.model.value(v).name == term.output) return v;
    names.push_back(dag.model.value(v).name);
  }
  auto& d = diagnostics.report(Code::E0512, term.span, fmt::format("the model has no output `{}`", term.output));
  d.note(fmt::format("its outputs are {}", support::join(names, ", ")));
  const std::string meant = support::did_you_mean(term.output, names);
  if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
  return ValueId();
}

// The target's graph input, or a new one that the data must bring.
ValueId target_value(TrainingDag& dag, const LossTerm& term, const ir::TensorType& type, Diagnostics& diagnostics) {
  for (ValueId v : dag.model.inputs) {
    if (dag.model.value(v).name != term.target) continue;
    const ir::TensorType& have = dag.model.value(v).type;
    const bool integers = have.dtype == ir::DType::kI64 || have.dtype == ir::DType::kI32;
    if (have.shape != type.shape || integers != (type.dtype == ir::DType::kI64)) {
      diagnostics.report(Code::E0514, term.span,
                         fmt::format("target `{}` is {}, the loss needs {}", term.target, to_string(have), to_string(type)));
      return ValueId();
    }
    return v;
  }
  // Two terms may share a target.
  for (size_t i = 0; i < dag.model.values.size(); ++i) {
    const ir::Value& value = dag.model.values[i];
    if (value.kind == ValueKind::kInput && value.name == term.target && value.type == type) return ValueId(static_cast<int64_t>(i));
  }
  const ValueId target = dag.model.add_value(term.target, type, ValueKind::kInput);
  dag.model.inputs.push_back(target);
  return target;
}

// Which dim of the logits holds the classes: the last, or dim 1 when only that fits a target the graph has.
int64_t class_dim_of(const TrainingDag& dag, const LossTerm& term, const ir::Shape& logits) {
  const int64_t last = static_cast<int64_t>(logits.size()) - 1;
  for (ValueId v : dag.model.inputs) {
    if (dag.model.value(v).name != term.target) continue;
    ir::Shape without_last(logits.begin(), logits.end() - 1);
    if (dag.model.value(v).type.shape == without_last) return last;
    return std::min<int64_t>(1, last);
  }
  return last;
}

Op op_of(std::string kind, std::vector<ValueId> inputs, ir::Attrs attrs = {}) {
  Op op;
  op.kind = std::move(kind);
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  return op;
}

// Data has a sample in each place of dim 0. An output may have its samples elsewhere ([T, B, C] of a recurrent layer), or
// several places for each ([6B, C] of flattened tokens): its target is brought into that form.
struct Layout {
  ir::Shape of_data;          // [B, outer..., places of a sample, inner...]
  std::vector<int64_t> perm;  // [outer..., B, places, inner...]; empty: as it is
  ir::Shape of_output;
};

// Nothing when there are no samples, or when they differ in size.
std::optional<Layout> layout_of(const ir::Shape& shape) {
  const int sample_dim = ir::sample_dim(shape);
  if (sample_dim < 0 || shape[static_cast<size_t>(sample_dim)].constant != 0) return std::nullopt;
  const size_t at = static_cast<size_t>(sample_dim);
  const ir::Dim samples = shape[at];
  Layout layout;
  layout.of_output = shape;
  layout.of_data = shape;
  layout.of_data.erase(layout.of_data.begin() + static_cast<std::ptrdiff_t>(at));
  if (samples.batch != 1) layout.of_data.insert(layout.of_data.begin() + static_cast<std::ptrdiff_t>(at), samples.batch);
  layout.of_data.insert(layout.of_data.begin(), ir::Dim::batch_size());
  if (at == 0) return layout;
  for (size_t i = 0; i < layout.of_data.size(); ++i) layout.perm.push_back(static_cast<int64_t>(i < at ? i + 1 : i == at ? 0 : i));
  return layout;
}

// Appends ops of terms; an op that does not fit is an error at the term.
class TermBuilder {
 public:
  TermBuilder(TrainingDag& dag, const LossTerm& term, Diagnostics& diagnostics) : dag_(dag), term_(term), diagnostics_(diagnostics) {}

  // Adds weight * sum / count, both made from values of the model. A loss belongs where `at` is made.
  void add(double weight, ValueId at, Op sum, Op count) {
    const size_t index = dag_.losses.size();
    sum.name = fmt::format("loss.{}", index);
    count.name = fmt::format("count.{}", index);
    ir::LossInfo info;
    info.name = term_.output;
    info.weight = weight;
    const OpId producer = dag_.model.value(at).producer;
    tags_ = producer.valid() ? dag_.op_tags[producer.index()] : Tags{};
    info.loss_op = append(std::move(sum));
    info.count_op = info.loss_op.valid() ? append(std::move(count)) : OpId();
    if (!info.count_op.valid()) return;
    info.sum = dag_.model.op(info.loss_op).outputs[0];
    info.count = dag_.model.op(info.count_op).outputs[0];
    dag_.losses.push_back(info);
  }

  // A target of the data in the form of the output that it belongs to.
  ValueId laid_out(ValueId target, const Layout& layout, ValueId output) {
    const OpId producer = dag_.model.value(output).producer;
    tags_ = producer.valid() ? dag_.op_tags[producer.index()] : Tags{};
    if (!layout.perm.empty()) target = move("transpose", op_of("Transpose", {target}, {{"perm", layout.perm}}));
    if (!target.valid() || dag_.model.value(target).type.shape == layout.of_output) return target;
    return move("reshape", op_of("Reshape", {target}, {{"shape", layout.of_output}}));
  }

  // Numbers of any type as floats that a sum takes.
  ValueId as_float(ValueId v) {
    if (ir::is_float(dag_.model.value(v).type.dtype)) return v;
    Op cast;
    cast.kind = "Cast";
    cast.inputs = {v};
    cast.attrs = {{"to", std::string("f64")}};
    cast.name = fmt::format("count.{}.cast", dag_.losses.size());
    const OpId producer = dag_.model.value(v).producer;
    tags_ = producer.valid() ? dag_.op_tags[producer.index()] : Tags{};
    const OpId id = append(std::move(cast));
    return id.valid() ? dag_.model.op(id).outputs[0] : ValueId();
  }

 private:
  ValueId move(const char* how, Op op) {
    op.name = fmt::format("target.{}.{}", dag_.losses.size(), how);
    const OpId id = append(std::move(op));
    return id.valid() ? dag_.model.op(id).outputs[0] : ValueId();
  }

  OpId append(Op op) {
    op.path = "loss";
    const OpId id(static_cast<int64_t>(dag_.model.ops.size()));
    auto made = ops::append_op(dag_.model, std::move(op));
    if (!made) {
      diagnostics_.report(Code::E0514, term_.span, fmt::format("the loss does not fit the model: {}", made.error().message));
      return OpId();
    }
    dag_.op_tags.push_back(tags_);
    return id;
  }

  TrainingDag& dag_;
  const LossTerm& term_;
  Diagnostics& diagnostics_;
  Tags tags_;
};

// cross_entropy and mse: of an output with values for each sample, against a target.
void append_target_loss(TrainingDag& dag, const LossTerm& term, Diagnostics& diagnostics) {
  const ValueId output = find_output(dag, term, diagnostics);
  if (!output.valid()) return;
  const ir::TensorType type = dag.model.value(output).type;
  if (!ir::is_float(type.dtype) || type.shape.empty() || ir::sample_dim(type.shape) < 0) {
    diagnostics.report(Code::E0514, term.span,
                       fmt::format("output `{}` is {}, a loss needs one float value or more per sample", term.output, to_string(type)));
    return;
  }
  ir::TensorType target_type = type;
  ir::Attrs attrs;
  const bool classes = term.kind == LossTerm::Kind::kCrossEntropy;
  if (classes) {
    const int64_t class_dim = class_dim_of(dag, term, type.shape);
    target_type.dtype = ir::DType::kI64;
    target_type.shape.erase(target_type.shape.begin() + class_dim);
    attrs = {{"ignore_index", term.ignore_index}, {"label_smoothing", term.label_smoothing}, {"class_dim", class_dim}};
  }
  const std::optional<Layout> layout = layout_of(target_type.shape);
  if (!layout) {
    diagnostics.report(Code::E0514, term.span,
                       fmt::format("output `{}` is {}: a target of {} has no equal parts for the samples", term.output, to_string(type),
                                   to_string(target_type)));
    return;
  }
  ValueId target = target_value(dag, term, {target_type.dtype, layout->of_data}, diagnostics);
  if (!target.valid()) return;
  TermBuilder builder(dag, term, diagnostics);
  target = builder.laid_out(target, *layout, output);
  if (!target.valid()) return;
  if (classes) {
    builder.add(term.weight, output, op_of("CrossEntropyLoss", {output, target}, attrs),
                op_of("CountValid", {target}, {{"ignore_index", term.ignore_index}}));
  } else {
    builder.add(term.weight, output, op_of("MseLoss", {output, target}), op_of("CountElements", {target}));
  }
}

void append_mean(TrainingDag& dag, TermBuilder& builder, double weight, ValueId v) {
  builder.add(weight, v, op_of("MeanLoss", {v}), op_of("CountElements", {}, {{"shape", dag.model.value(v).type.shape}}));
}

void append_scalar_term(TrainingDag& dag, TermBuilder& builder, double weight, const ScalarTerm& term) {
  weight *= term.weight;
  switch (term.kind) {
    case ScalarTerm::Kind::kMean: return append_mean(dag, builder, weight, term.value);
    case ScalarTerm::Kind::kCrossEntropy: {
      const Op made = dag.model.op(term.op);
      return builder.add(weight, term.value, op_of("CrossEntropyLoss", made.inputs, made.attrs),
                         op_of("CountValid", {made.inputs[1]}, {{"ignore_index", made.attrs.i("ignore_index")}}));
    }
    case ScalarTerm::Kind::kRatio: {
      const ValueId divisor = builder.as_float(term.divisor);
      if (divisor.valid()) builder.add(weight, term.value, op_of("MeanLoss", {term.value}), op_of("MeanLoss", {divisor}));
      return;
    }
  }
}

// mean(output): of the elements of an output with a row per sample, or a scalar that the model averages itself.
void append_mean_loss(TrainingDag& dag, const LossTerm& term, const Strategy& strategy, Diagnostics& diagnostics) {
  const ValueId output = find_output(dag, term, diagnostics);
  if (!output.valid()) return;
  const ir::TensorType type = dag.model.value(output).type;
  TermBuilder builder(dag, term, diagnostics);
  if (!ir::is_float(type.dtype)) {
    diagnostics.report(Code::E0514, term.span, fmt::format("output `{}` is {}, the mean of a loss needs floats", term.output, to_string(type)));
    return;
  }
  if (ir::sample_dim(type.shape) >= 0) return append_mean(dag, builder, term.weight, output);
  ScalarLoss scalar = take_apart(dag.model, output);
  if (scalar.coupled.valid() && cuts_batch(strategy)) {
    const Op& op = dag.model.op(scalar.coupled);
    diagnostics.report(Code::E0507, term.span, fmt::format("the loss `{}` is no mean over samples, so the batch cannot be cut", term.output))
        .note(fmt::format("operation `{}` ({}, path `{}`) combines samples in another way", op.name, op.kind, op.path))
        .help("export per-sample values or logits as output and write the loss in `train`, or train with one microbatch on one device");
    return;
  }
  if (scalar.coupled.valid()) scalar.terms = {{ScalarTerm::Kind::kMean, 1.0, output, ValueId(), OpId()}};
  for (const ScalarTerm& t : scalar.terms) append_scalar_term(dag, builder, term.weight, t);
}

// A model whose only float output is a scalar is its own loss.
std::optional<LossTerm> own_loss(const TrainingDag& dag) {
  std::vector<std::string> floats;
  bool scalar = false;
  for (ValueId v : dag.model.outputs) {
    const ir::Value& value = dag.model.value(v);
    if (!ir::is_float(value.type.dtype)) continue;
    floats.push_back(value.name);
    scalar = ir::num_elements(value.type.shape) == ir::Dim(1);
  }
  if (floats.size() != 1 || !scalar) return std::nullopt;
  LossTerm term;
  term.kind = LossTerm::Kind::kMean;
  term.output = floats.front();
  return term;
}

}  // namespace

void append_losses(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  std::vector<LossTerm> terms = strategy.train.loss;
  if (terms.empty()) {
    if (auto own = own_loss(dag)) terms.push_back(*own);
  }
  if (terms.empty()) {
    diagnostics.report(Code::E0508, strategy.train.span, "the strategy has no loss, and the model has no scalar float output alone")
        .help("say what to minimise: `train { loss cross_entropy(logits = output \"logits\", target = input \"labels\") }`");
    return;
  }
  for (const LossTerm& term : terms) {
    if (term.kind == LossTerm::Kind::kMean) append_mean_loss(dag, term, strategy, diagnostics);
    else append_target_loss(dag, term, diagnostics);
  }
}

std::vector<OpId> count_ops(const ir::Model& model, const ir::LossInfo& loss) {
  std::set<OpId> seen;
  std::vector<OpId> work{loss.count_op};
  while (!work.empty()) {
    const OpId id = work.back();
    work.pop_back();
    if (!seen.insert(id).second) continue;
    for (ValueId v : model.op(id).inputs) {
      if (v.valid() && model.value(v).producer.valid()) work.push_back(model.value(v).producer);
    }
  }
  // Ops are appended after what they read, so ids are in topological order but for adopted clones, which no count reads.
  return {seen.begin(), seen.end()};
}

}  // namespace piper::passes
