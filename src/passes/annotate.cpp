// annotate: tags for every operation, frozen and tied parameters, the losses, adopted glue, and the cut into chunks.
//
//   %7 = Add(...)            {stage=0}
//   %8 = Where(mask, ...)    {}              ->   cloned into stage 0 and stage 1, which read it
//
// First of the passes: everything later speaks of chunks and their tags.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ops/op.h"
#include "passes/chunks.h"
#include "passes/coupling.h"
#include "passes/expert_regions.h"
#include "passes/losses.h"
#include "passes/parameters.h"
#include "passes/pipeline.h"
#include "passes/select.h"
#include "support/strings.h"

namespace piper::passes {

using ir::Op;
using ir::OpId;
using ir::Tags;
using ir::ValueId;
using ir::ValueKind;
using support::Code;

namespace {

// Tags that a directive names: only these cut the model.
std::set<std::string> directive_tags(const Strategy& strategy) {
  std::set<std::string> used;
  auto add = [&](const ir::Selector& s) {
    for (const ir::Constraint& c : s.constraints) used.insert(c.tag);
  };
  for (const auto& p : strategy.places) add(p.selector);
  for (const auto& r : strategy.replicates) add(r.selector);
  for (const auto& s : strategy.shard_experts) add(s.selector);
  for (const auto& r : strategy.recomputes) add(r.selector);
  for (const auto& o : strategy.orders) {
    for (const auto& e : o.elements) {
      for (const auto& s : e.selectors) add(s);
    }
  }
  if (strategy.split) used.erase(strategy.split->dim);
  return used;
}

void apply_tags(TrainingDag& dag, const Strategy& strategy) {
  const std::set<std::string> used = directive_tags(strategy);
  dag.op_tags.assign(dag.model.ops.size(), {});
  for (const ir::TagRule& rule : strategy.tags) {
    if (!used.count(rule.name)) continue;
    for (const auto& [op, value] : rule.ops) dag.op_tags[op.index()][rule.name] = value;
  }
}

// ---- Adoption ----

// Gives operations that no `place` names to a neighbour, or to several when they depend on no parameter.
class Adoption {
 public:
  Adoption(TrainingDag& dag, const Strategy& strategy, std::vector<char>& live)
      : dag_(dag), live_(live), split_dim_(strategy.split ? strategy.split->dim : "") {
    const size_t n = dag.model.ops.size();
    placed_.resize(n);
    const std::set<std::string> place_tags = tags_of_places(strategy);
    for (size_t i = 0; i < n; ++i) {
      placed_[i] = strategy.places.empty() || is_placed(strategy, dag.op_tags[i]);
      // An operation that has every tag that places speak of was named by the rules: the missing place is a mistake.
      const Tags& tags = dag.op_tags[i];
      if (!placed_[i] && std::all_of(place_tags.begin(), place_tags.end(), [&](const std::string& t) { return tags.count(t) > 0; })) {
        placed_[i] = true;
      }
    }
    mark_parameter_dependence();
  }

  void run() {
    // Each round settles at least one operation or is the last.
    bool changed = true;
    while (changed) {
      changed = false;
      for (size_t i = dag_.model.ops.size(); i-- > 0;) changed |= adopt_from_consumers(OpId(static_cast<int64_t>(i)));
      if (changed) continue;
      for (size_t i = 0; i < dag_.model.ops.size() && !changed; ++i) changed |= adopt_from_producers(OpId(static_cast<int64_t>(i)));
    }
  }

 private:
  std::set<std::string> tags_of_places(const Strategy& strategy) const {
    std::set<std::string> tags;
    for (const ir::Place& p : strategy.places) {
      for (const ir::Constraint& c : p.selector.constraints) {
        if (c.tag != split_dim_) tags.insert(c.tag);
      }
    }
    return tags;
  }

  bool is_placed(const Strategy& strategy, const Tags& tags) const {
    return std::any_of(strategy.places.begin(), strategy.places.end(),
                       [&](const ir::Place& p) { return matches(p.selector, tags, split_dim_); });
  }

  void mark_parameter_dependence() {
    value_depends_.assign(dag_.model.values.size(), false);
    op_depends_.assign(dag_.model.ops.size(), false);
    for (OpId id : topological_order(dag_.model)) {
      const Op& op = dag_.model.op(id);
      bool depends = false;
      for (ValueId v : op.inputs) {
        if (!v.valid()) continue;
        depends = depends || dag_.model.value(v).kind == ValueKind::kParameter || value_depends_[v.index()];
      }
      op_depends_[id.index()] = depends;
      for (ValueId v : op.outputs) value_depends_[v.index()] = depends;
    }
  }

  bool adopt_from_consumers(OpId id) {
    if (placed_[id.index()] || !live_[id.index()]) return false;
    std::set<Tags> regions;
    bool all_known = true;
    for (OpId c : consumers_of(id)) {
      if (placed_[c.index()]) {
        regions.insert(dag_.op_tags[c.index()]);
      } else {
        all_known = false;
      }
    }
    if (!all_known || regions.empty()) return false;
    if (regions.size() > 1 && op_depends_[id.index()]) return false;
    auto region = regions.begin();
    const Tags home = *region++;
    for (; region != regions.end(); ++region) clone_into(id, *region);
    dag_.op_tags[id.index()] = home;
    placed_[id.index()] = true;
    return true;
  }

  // An operation with parameters that its consumers disagree about joins the latest of its producers.
  bool adopt_from_producers(OpId id) {
    if (placed_[id.index()] || !live_[id.index()]) return false;
    OpId latest;
    for (ValueId v : dag_.model.op(id).inputs) {
      if (!v.valid()) continue;
      const OpId p = dag_.model.value(v).producer;
      if (p.valid() && placed_[p.index()] && (!latest.valid() || latest < p)) latest = p;
    }
    if (!latest.valid()) return false;
    dag_.op_tags[id.index()] = dag_.op_tags[latest.index()];
    placed_[id.index()] = true;
    return true;
  }

  std::vector<OpId> consumers_of(OpId id) const {
    std::vector<OpId> found;
    const Op& op = dag_.model.op(id);
    for (size_t i = 0; i < dag_.model.ops.size(); ++i) {
      if (!live_[i]) continue;
      for (ValueId v : dag_.model.ops[i].inputs) {
        if (std::find(op.outputs.begin(), op.outputs.end(), v) != op.outputs.end()) {
          found.push_back(OpId(static_cast<int64_t>(i)));
          break;
        }
      }
    }
    return found;
  }

  void clone_into(OpId id, const Tags& region) {
    const Op original = dag_.model.op(id);
    Op copy = original;
    copy.outputs.clear();
    copy.name += fmt::format("@{}", ir::to_string(region));
    std::vector<ir::TensorType> types;
    for (ValueId v : original.outputs) types.push_back(dag_.model.value(v).type);
    const std::vector<OpId> readers = consumers_of(id);
    const OpId clone = dag_.model.add_op(std::move(copy), types);
    dag_.op_tags.push_back(region);
    placed_.push_back(true);
    live_.push_back(true);
    op_depends_.push_back(false);
    value_depends_.resize(dag_.model.values.size(), false);
    for (OpId reader : readers) {
      if (dag_.op_tags[reader.index()] != region || reader == clone) continue;
      for (ValueId& v : dag_.model.ops[reader.index()].inputs) {
        for (size_t k = 0; k < original.outputs.size(); ++k) {
          if (v == original.outputs[k]) v = dag_.model.op(clone).outputs[k];
        }
      }
    }
  }

  TrainingDag& dag_;
  std::vector<char>& live_;
  std::string split_dim_;
  std::vector<char> placed_;  // has its tags; the others are adopted
  std::vector<char> op_depends_;
  std::vector<char> value_depends_;
};

// Operations that a loss or a count depends on; the others are not part of the step.
std::vector<char> live_ops(const TrainingDag& dag) {
  std::vector<char> live(dag.model.ops.size(), false);
  std::vector<OpId> work;
  auto reach = [&](OpId op) {
    if (op.valid() && !live[op.index()]) {
      live[op.index()] = true;
      work.push_back(op);
    }
  };
  for (const ir::LossInfo& loss : dag.losses) reach(loss.loss_op);
  while (!work.empty()) {
    const OpId op = work.back();
    work.pop_back();
    for (ValueId v : dag.model.op(op).inputs) {
      if (v.valid()) reach(dag.model.value(v).producer);
    }
  }
  return live;
}

}  // namespace

void annotate(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  if (strategy.split) dag.split_dim = strategy.split->dim;
  apply_tags(dag, strategy);
  freeze_parameters(dag.model, strategy, diagnostics);
  tie_parameters(dag, strategy, diagnostics);
  append_losses(dag, strategy, diagnostics);
  if (diagnostics.has_errors()) return;
  std::vector<char> live = live_ops(dag);
  Adoption(dag, strategy, live).run();
  mark_expert_regions(dag, live, strategy, diagnostics);
  set_coupling(dag, live, strategy, diagnostics);
  cut_chunks(dag, live);
}

}  // namespace piper::passes
