#include "passes/expert_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "passes/select.h"
#include "support/strings.h"

namespace piper::passes {

using ir::Op;
using ir::OpId;
using ir::ValueId;
using ir::ValueKind;
using support::Code;

namespace {

// The operations between a way to the experts and a way back.
struct Region {
  OpId route;
  std::set<OpId> ops;
  std::vector<OpId> linears;
  std::string wrong;  // why their rows cannot change devices
};

std::string describe(const Op& op) { return fmt::format("operation `{}` ({}, path `{}`)", op.name, op.kind, op.path); }

class Finder {
 public:
  Finder(const ir::Model& model, const std::vector<char>& live) : model_(model), live_(live), consumers_(model.consumers()) {}

  std::vector<Region> run() {
    for (size_t i = 0; i < model_.ops.size(); ++i) {
      const Op& op = model_.ops[i];
      if (!live_[i] || op.kind != "MoECombine") continue;
      const OpId route = route_of(op);
      if (!route.valid() || model_.op(route).attrs.i("padded") != 0) continue;
      Region region = behind(op.inputs[0], route);
      if (!region.linears.empty()) add(std::move(region));
    }
    for (Region& region : regions_) {
      if (region.wrong.empty()) region.wrong = leak(region);
    }
    return std::move(regions_);
  }

 private:
  // The route whose slots a dispatch or combine uses.
  OpId route_of(const Op& op) const {
    ValueId slot = op.inputs[1];
    OpId made = model_.value(slot).producer;
    while (made.valid() && model_.op(made).kind == "Reshape") made = model_.value(model_.op(made).inputs[0]).producer;
    return made.valid() && model_.op(made).kind == "MoERoute" ? made : OpId();
  }

  Region behind(ValueId rows, OpId route) const {
    Region region{route, {}, {}, ""};
    std::vector<ValueId> open{rows};
    while (!open.empty()) {
      const ir::Value& value = model_.value(open.back());
      open.pop_back();
      if (value.kind == ValueKind::kInput) region.wrong = fmt::format("they read input `{}` of the model", value.name);
      if (!value.producer.valid()) continue;
      const Op& op = model_.op(value.producer);
      if (op.kind == "MoERoute" && value.producer == route) continue;
      if (op.kind == "MoEDispatch") {
        if (route_of(op) != route) region.wrong = describe(op) + " gives them rows in another order";
        continue;
      }
      if (!region.ops.insert(value.producer).second) continue;
      if (op.kind == "GroupedLinear") region.linears.push_back(value.producer);
      for (ValueId v : op.inputs) {
        if (v.valid()) open.push_back(v);
      }
    }
    return region;
  }

  // Two ways back from the same rows are of one region.
  void add(Region region) {
    for (Region& other : regions_) {
      const bool common = std::any_of(region.ops.begin(), region.ops.end(), [&](OpId op) { return other.ops.count(op) > 0; });
      if (!common) continue;
      if (other.route != region.route) other.wrong = "two routes go through them";
      other.ops.insert(region.ops.begin(), region.ops.end());
      return;
    }
    regions_.push_back(std::move(region));
  }

  // Rows are in the order of the experts' devices there; nobody else can read them.
  std::string leak(const Region& region) const {
    for (OpId id : region.ops) {
      for (ValueId v : model_.op(id).outputs) {
        for (OpId reader : consumers_[v.index()]) {
          const Op& op = model_.op(reader);
          const bool back = op.kind == "MoECombine" && op.inputs[0] == v && route_of(op) == region.route;
          if (live_[reader.index()] && !back && region.ops.count(reader) == 0) return describe(op) + " reads what they compute";
        }
      }
    }
    for (OpId reader : consumers_[model_.op(region.route).outputs[1].index()]) {
      if (live_[reader.index()] && region.ops.count(reader) == 0 && model_.op(reader).kind != "GroupedLinear") {
        return describe(model_.op(reader)) + " reads how many rows they have";
      }
    }
    return "";
  }

  const ir::Model& model_;
  const std::vector<char>& live_;
  std::vector<std::vector<OpId>> consumers_;
  std::vector<Region> regions_;
};

class Marker {
 public:
  Marker(ir::TrainingDag& dag, const ir::Strategy& strategy, support::Diagnostics& diagnostics)
      : dag_(dag), strategy_(strategy), diagnostics_(diagnostics) {}

  void run(const std::vector<Region>& regions) {
    std::vector<int> of(regions.size(), -1);
    for (size_t s = 0; s < strategy_.shard_experts.size(); ++s) {
      bool any = false;
      for (size_t r = 0; r < regions.size(); ++r) {
        if (!names(strategy_.shard_experts[s], regions[r])) continue;
        any = true;
        if (of[r] >= 0) report_twice(regions[r], static_cast<size_t>(of[r]), s);
        of[r] = static_cast<int>(s);
      }
      if (!any) report_none(strategy_.shard_experts[s], regions);
    }
    for (size_t r = 0; r < regions.size(); ++r) {
      if (of[r] >= 0) mark(regions[r], of[r]);
    }
  }

 private:
  bool names(const ir::ShardExperts& shard, const Region& region) const {
    return std::any_of(region.linears.begin(), region.linears.end(),
                       [&](OpId op) { return matches(shard.selector, dag_.op_tags[op.index()], dag_.split_dim); });
  }

  std::string path_of(const Region& region) const {
    const std::string& path = dag_.model.op(region.route).path;
    return path.empty() ? dag_.model.op(region.route).name : path;
  }

  void report_twice(const Region& region, size_t first, size_t second) {
    diagnostics_
        .report(Code::E0520, strategy_.shard_experts[second].span, fmt::format("the experts of `{}` are divided twice", path_of(region)))
        .label(strategy_.shard_experts[first].span, "first divided here");
  }

  void report_none(const ir::ShardExperts& shard, const std::vector<Region>& regions) {
    auto& d = diagnostics_.report(Code::E0519, shard.selector.span, fmt::format("`{}` has no experts", to_string(shard.selector)));
    if (regions.empty()) {
      d.note("the model has none in a form that is recognised");
      d.help("`piper inspect` prints the experts of a model, docs/experts.md the forms");
      return;
    }
    std::vector<std::string> where;
    for (size_t r = 0; r < std::min<size_t>(regions.size(), 4); ++r) {
      const ir::Tags& tags = dag_.op_tags[regions[r].linears.front().index()];
      where.push_back(fmt::format("`{}`{}", path_of(regions[r]), tags.empty() ? "" : fmt::format(" ({})", ir::to_string(tags))));
    }
    d.note(fmt::format("experts are at {}{}", support::join(where, ", "), regions.size() > 4 ? ", …" : ""));
  }

  void mark(const Region& region, int shard) {
    const ir::ShardExperts& directive = strategy_.shard_experts[static_cast<size_t>(shard)];
    std::string wrong = region.wrong;
    const ir::Tags& tags = dag_.op_tags[region.ops.begin()->index()];
    for (OpId op : region.ops) {
      const ir::Tags& other = dag_.op_tags[op.index()];
      if (wrong.empty() && other != tags) {
        wrong = fmt::format("they are cut in two, by the tags {{{}}} and {{{}}}", ir::to_string(tags), ir::to_string(other));
      }
    }
    if (!wrong.empty()) {
      diagnostics_.report(Code::E0520, directive.span, fmt::format("the experts of `{}` cannot be divided: {}", path_of(region), wrong));
      return;
    }
    if (dag_.mesh.axes[static_cast<size_t>(directive.axis)].size == 1) return;
    for (OpId op : region.ops) dag_.op_tags[op.index()][ir::kExpertTag] = static_cast<int64_t>(dag_.regions.size());
    dag_.regions.push_back({shard, region.route, path_of(region)});
  }

  ir::TrainingDag& dag_;
  const ir::Strategy& strategy_;
  support::Diagnostics& diagnostics_;
};

}  // namespace

void mark_expert_regions(ir::TrainingDag& dag, const std::vector<char>& live, const ir::Strategy& strategy,
                         support::Diagnostics& diagnostics) {
  if (strategy.shard_experts.empty()) return;
  Marker(dag, strategy, diagnostics).run(Finder(dag.model, live).run());
}

}  // namespace piper::passes
