#include "inspect/strategy_facts.h"

#include <algorithm>

#include "inspect/module_tree.h"
#include "ops/op.h"
#include "passes/chunks.h"
#include "passes/pipeline.h"

namespace piper::inspect {

using ir::Model;
using ir::Op;
using ir::OpId;
using ir::TrainingDag;
using ir::ValueId;

void ChunkCost::operator+=(const ChunkCost& other) {
  forward += other.forward;
  backward += other.backward;
  ops += other.ops;
  saved += other.saved;
  params.insert(other.params.begin(), other.params.end());
}

namespace {

std::string tag_text(const ir::Tags& tags) { return tags.empty() ? "-" : ir::to_string(tags); }

// Operations that no rule named, with what became of them.
class Adopting {
 public:
  Adopting(const Model& model, const ir::Strategy& strategy, const TrainingDag& dag) : model_(model), dag_(dag) {
    named_.resize(model.ops.size());
    for (const ir::TagRule& rule : strategy.tags) {
      for (const auto& [op, value] : rule.ops) named_[op.index()].insert(rule.name);
    }
    for (size_t i = model.ops.size(); i < dag.model.ops.size(); i++) {
      const Op& op = dag.model.ops[i];
      if (const size_t at = op.name.rfind('@'); at != std::string::npos)
        clones_[op.kind + " " + op.name.substr(0, at)].insert(tag_text(dag.op_tags[i]));
    }
    for (size_t i = 0; i < model.ops.size(); i++) {
      for (const auto& tag : dag.op_tags[i]) {
        if (named_[i].count(tag.first)) continue;
        add(i);
        break;
      }
    }
  }

  std::vector<Adoption> rows() const { return rows_; }

 private:
  void add(size_t i) {
    const Op& op = model_.ops[i];
    Adoption row{op.path, {tag_text(dag_.op_tags[i])}, "", {}};
    const auto clones = clones_.find(op.kind + " " + op.name);
    if (clones != clones_.end()) {
      row.regions.insert(row.regions.end(), clones->second.begin(), clones->second.end());
      row.why = "each reads it, and it depends on no parameter: copied";
    } else {
      row.why = read_elsewhere(OpId(static_cast<int64_t>(i))) ? "made from what is made there; its readers disagree"
                                                              : "only read there";
    }
    auto same = std::find_if(rows_.begin(), rows_.end(), [&](const Adoption& other) {
      return other.path == row.path && other.regions == row.regions && other.why == row.why;
    });
    if (same == rows_.end()) same = rows_.insert(rows_.end(), row);
    same->kinds.push_back(op.kind);
  }

  bool read_elsewhere(OpId id) const {
    const auto& outputs = dag_.model.op(id).outputs;
    for (size_t i = 0; i < dag_.model.ops.size(); i++) {
      for (ValueId v : dag_.model.ops[i].inputs) {
        if (std::find(outputs.begin(), outputs.end(), v) != outputs.end() && !dag_.op_tags[i].empty() &&
            dag_.op_tags[i] != dag_.op_tags[id.index()])
          return true;
      }
    }
    return false;
  }

  const Model& model_;
  const TrainingDag& dag_;
  std::vector<std::set<std::string>> named_;
  std::map<std::string, std::set<std::string>> clones_;
  std::vector<Adoption> rows_;
};

ChunkCost cost_of(const TrainingDag& dag, const ir::Chunk& chunk) {
  ChunkCost cost;
  auto flops = [&](const std::vector<OpId>& ops) {
    double sum = 0;
    for (OpId id : ops)
      sum += ops::flops_of(dag.model, dag.model.op(id), 2) - ops::flops_of(dag.model, dag.model.op(id), 1);
    return sum;
  };
  cost.forward = flops(chunk.forward);
  cost.backward = flops(chunk.backward);
  cost.ops = static_cast<int64_t>(chunk.forward.size());
  for (ir::ParamId p : chunk.params) cost.params.insert(p.value);
  // What the backward reads of what the forward made, and of what came from other chunks.
  const std::set<OpId> forward(chunk.forward.begin(), chunk.forward.end());
  const std::set<ValueId> inputs(chunk.inputs.begin(), chunk.inputs.end());
  std::set<ValueId> counted;
  for (OpId id : chunk.backward) {
    for (ValueId read : dag.model.op(id).inputs) {
      if (!read.valid()) continue;
      const ValueId v = passes::memory_of(dag.model, read, inputs);
      const bool kept = inputs.count(v) || forward.count(dag.model.value(v).producer);
      if (kept && counted.insert(v).second) cost.saved += bytes_of(dag.model.value(v).type, 1);
    }
  }
  return cost;
}

// The chunks of a DAG with placements, and what they add up to on each.
void add_chunks(const TrainingDag& dag, StrategyFacts& facts) {
  for (const ir::Chunk& chunk : dag.chunks) {
    const ChunkCost cost = cost_of(dag, chunk);
    facts.chunks.push_back({chunk.name.empty() ? "(all)" : chunk.name, cost, param_elements(dag.model, cost.params), {}});
  }
  std::map<std::string, ChunkCost> by_place;
  std::set<std::pair<size_t, std::string>> seen;
  for (const ir::Node& node : dag.nodes) {
    if (node.kind != ir::NodeKind::kCompute || node.pass != ir::Pass::kForward || !node.placement.valid()) continue;
    const std::string& name = dag.placements[node.placement.index()].name;
    const size_t c = node.chunk.index();
    if (!seen.insert({c, name}).second) continue;
    facts.chunks[c].places.push_back(name);
    by_place[name] += facts.chunks[c].cost;
  }
  for (const auto& [name, cost] : by_place) facts.devices.push_back({name, cost, param_elements(dag.model, cost.params), {}});
}

}  // namespace

std::optional<StrategyFacts> strategy_facts(const Model& model, const ir::Strategy& strategy, support::Diagnostics& diagnostics) {
  std::optional<TrainingDag> annotated, placed;
  passes::run_passes(
      model, strategy, diagnostics,
      [&](const std::string& pass, const TrainingDag& dag) {
        if (pass == "annotate") annotated = dag;
        if (pass == "recompute") placed = dag;
      },
      "recompute");
  if (!annotated) return std::nullopt;
  StrategyFacts facts;
  for (size_t i = 0; i < model.ops.size(); i++) facts.tags[model.ops[i].path].insert(tag_text(annotated->op_tags[i]));
  facts.adopted = Adopting(model, strategy, *annotated).rows();
  if (placed) add_chunks(*placed, facts);
  return facts;
}

}  // namespace piper::inspect
