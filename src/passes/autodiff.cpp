#include "passes/autodiff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ops/op.h"
#include "passes/chunks.h"
#include "support/error.h"

namespace piper::passes {

using ir::Chunk;
using ir::ChunkId;
using ir::Op;
using ir::OpId;
using ir::ParamId;
using ir::ValueId;
using ir::ValueKind;
using support::Code;

std::vector<char> values_needing_gradient(const ir::Model& model) {
  std::vector<char> needs(model.values.size(), false);
  for (const ir::Parameter& p : model.params) {
    needs[p.value.index()] = p.trainable && ir::is_float(p.type.dtype);
  }
  for (OpId id : topological_order(model)) {
    const Op& op = model.op(id);
    const bool any = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return v.valid() && needs[v.index()]; });
    for (ValueId v : op.outputs) needs[v.index()] = any && ir::is_float(model.value(v).type.dtype);
  }
  return needs;
}

namespace {

class ChunkDifferentiator final : public ops::GradientBuilder {
 public:
  ChunkDifferentiator(ir::TrainingDag& dag, ChunkId id, const std::vector<char>& needs, support::Diagnostics& diagnostics)
      : dag_(dag), id_(id), needs_(needs), diagnostics_(diagnostics) {}

  void run() {
    collect_incoming();
    const std::vector<OpId> forward = dag_.chunk(id_).forward;
    for (size_t i = forward.size(); i-- > 0;) differentiate(forward[i]);
    write_outgoing();
    drop_unused();
  }

  // ---- ops::GradientBuilder ----
  const Op& op() const override { return op_; }
  const ir::TensorType& type(ValueId v) const override { return dag_.model.value(v).type; }
  ValueId grad(size_t i) const override { return i < grads_.size() ? grads_[i] : ValueId(); }
  bool wants(size_t i) const override {
    return i < op_.inputs.size() && op_.inputs[i].valid() && needs(op_.inputs[i]);
  }
  ValueId emit(std::string_view kind, std::vector<ValueId> inputs, ir::Attrs attrs) override {
    return emit_all(kind, std::move(inputs), std::move(attrs)).front();
  }
  std::vector<ValueId> emit_all(std::string_view kind, std::vector<ValueId> inputs, ir::Attrs attrs) override {
    Op made;
    made.kind = std::string(kind);
    made.inputs = std::move(inputs);
    made.attrs = std::move(attrs);
    made.path = op_.path;
    made.name = fmt::format("grad.{}.{}", op_.name, dag_.chunk(id_).backward.size());
    const OpId id(static_cast<int64_t>(dag_.model.ops.size()));
    auto outputs = ops::append_op(dag_.model, std::move(made));
    PIPER_CHECK(outputs.has_value(), fmt::format("gradient of {} emits a bad {}: {}", op_.kind, kind, outputs.error().message));
    dag_.chunk(id_).backward.push_back(id);
    return *outputs;
  }
  void add_grad(size_t i, ValueId gradient) override {
    const ValueId input = op_.inputs[i];
    PIPER_CHECK(type(gradient) == type(input), fmt::format("gradient of {} for input {} is {}, the input is {}", op_.kind, i,
                                                           to_string(type(gradient)), to_string(type(input))));
    if (dag_.model.value(input).kind == ValueKind::kParameter) {
      dag_.chunk(id_).param_gradients.emplace_back(dag_.model.value(input).param, gradient);
    } else {
      parts_[input].push_back(gradient);
    }
  }

 private:
  bool needs(ValueId v) const { return v.index() < needs_.size() && needs_[v.index()]; }

  // What consumers in later chunks computed for our outputs.
  void collect_incoming() {
    for (ValueId v : dag_.chunk(id_).outputs) {
      if (!needs(v)) continue;
      for (size_t c = 0; c < dag_.chunks.size(); ++c) {
        for (const auto& [value, gradient] : dag_.chunks[c].gradients_out) {
          if (value != v) continue;
          dag_.chunk(id_).gradients_in.push_back({v, ChunkId(static_cast<int64_t>(c)), gradient});
          parts_[v].push_back(gradient);
        }
      }
    }
  }

  // The sum of the contributions to a value's gradient, in the order in which they came.
  ValueId total(ValueId v) {
    auto it = parts_.find(v);
    if (it == parts_.end()) return ValueId();
    ValueId sum = it->second.front();
    for (size_t k = 1; k < it->second.size(); ++k) sum = emit("Add", {sum, it->second[k]}, {});
    it->second = {sum};
    return sum;
  }

  void differentiate(OpId id) {
    op_ = dag_.model.op(id);
    for (size_t t = 0; t < dag_.losses.size(); ++t) {
      if (dag_.losses[t].loss_op == id) return differentiate_loss(t);
    }
    grads_.clear();
    bool any = false;
    for (ValueId v : op_.outputs) {
      grads_.push_back(needs(v) ? total(v) : ValueId());
      any = any || grads_.back().valid();
    }
    const ops::OpDef* def = ops::find_op(op_.kind);
    PIPER_CHECK(def != nullptr, "op without definition: " + op_.kind);
    if (def->statistics != nullptr) add_statistics(*def);
    const bool wanted =
        std::any_of(op_.inputs.begin(), op_.inputs.end(), [&](ValueId v) { return v.valid() && needs(v); });
    if (!any || !wanted) return;
    if (def->gradient == nullptr) {
      diagnostics_.report(Code::E0509, fmt::format("`{}` ({}, path `{}`) is not differentiable: {}", op_.name, op_.kind, op_.path,
                                                   def->why_no_gradient ? def->why_no_gradient : "it has no gradient rule"));
      return;
    }
    def->gradient(*this);
  }

  // What the op adds to the statistics that it keeps, whatever the loss needs.
  void add_statistics(const ops::OpDef& def) {
    const size_t before = dag_.chunk(id_).param_gradients.size();
    def.statistics(*this);
    for (size_t i = before; i < dag_.chunk(id_).param_gradients.size(); ++i) {
      const ParamId param = dag_.chunk(id_).param_gradients[i].first;
      const double kept = std::pow(op_.attrs.f("momentum"), static_cast<double>(op_.attrs.i("groups", 1)));
      if (dag_.statistics.emplace(param, kept).second) continue;
      diagnostics_.report(
          Code::E0510,
          fmt::format(
              "`{}` ({}, path `{}`) advances `{}`, which another operation advances too; this is not implemented",
              op_.name, op_.kind, op_.path, dag_.model.params[param.index()].name));
    }
  }

  // The seed of the backward pass: weight / count, with the count of the whole global batch.
  void differentiate_loss(size_t t) {
    if (!needs(op_.inputs[0])) return;
    const ir::LossInfo& loss = dag_.losses[t];
    ir::Attrs attrs = op_.attrs;
    attrs.set("weight", loss.weight);
    if (op_.kind == "MeanLoss") {
      const ir::TensorType& type = dag_.model.value(op_.inputs[0]).type;
      attrs.set("shape", type.shape);
      attrs.set("dtype", std::string(ir::dtype_name(type.dtype)));
      return add_grad(0, emit("MeanLossGrad", {loss.count}, std::move(attrs)));
    }
    const char* kind = op_.kind == "CrossEntropyLoss" ? "CrossEntropyGrad" : "MseGrad";
    add_grad(0, emit(kind, {op_.inputs[0], op_.inputs[1], loss.count}, std::move(attrs)));
  }

  // Gradients of the chunk's inputs. Each is a tensor of its own, computed here, because it travels.
  void write_outgoing() {
    std::set<ValueId> taken;
    for (const auto& g : dag_.chunk(id_).gradients_in) taken.insert(g.gradient);
    const std::vector<ValueId> inputs = dag_.chunk(id_).inputs;
    for (ValueId v : inputs) {
      if (!needs(v)) continue;
      ValueId gradient = total(v);
      if (!gradient.valid()) continue;
      if (!taken.insert(gradient).second) {
        op_ = dag_.model.op(dag_.model.value(v).producer);
        gradient = emit("Identity", {gradient}, {});
        taken.insert(gradient);
      }
      dag_.chunk(id_).gradients_out.emplace_back(v, gradient);
    }
  }

  // Rules may emit ops whose results nobody asked for.
  void drop_unused() {
    Chunk& chunk = dag_.chunk(id_);
    std::set<ValueId> used;
    for (const auto& [v, g] : chunk.gradients_out) used.insert(g);
    for (const auto& [p, g] : chunk.param_gradients) used.insert(g);
    std::vector<OpId> kept;
    for (size_t i = chunk.backward.size(); i-- > 0;) {
      const Op& op = dag_.model.op(chunk.backward[i]);
      if (std::none_of(op.outputs.begin(), op.outputs.end(), [&](ValueId v) { return used.count(v) > 0; })) continue;
      for (ValueId v : op.inputs) {
        if (v.valid()) used.insert(v);
      }
      kept.push_back(chunk.backward[i]);
    }
    std::reverse(kept.begin(), kept.end());
    chunk.backward = std::move(kept);
    auto& in = chunk.gradients_in;
    in.erase(std::remove_if(in.begin(), in.end(), [&](const ir::GradientIn& g) { return used.count(g.gradient) == 0; }), in.end());
  }

  ir::TrainingDag& dag_;
  ChunkId id_;
  const std::vector<char>& needs_;
  support::Diagnostics& diagnostics_;
  Op op_;  // a copy: emitting grows the model's vector
  std::vector<ValueId> grads_;
  std::map<ValueId, std::vector<ValueId>> parts_;
};

}  // namespace

void differentiate_chunk(ir::TrainingDag& dag, ChunkId id, const std::vector<char>& needs_gradient,
                         support::Diagnostics& diagnostics) {
  ChunkDifferentiator(dag, id, needs_gradient, diagnostics).run();
}

}  // namespace piper::passes
