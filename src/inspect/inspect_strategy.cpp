#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "inspect/inspect.h"
#include "inspect/module_tree.h"
#include "ops/op.h"
#include "passes/chunks.h"
#include "passes/pipeline.h"
#include "support/strings.h"

namespace piper::inspect {

using ir::Model;
using ir::Op;
using ir::OpId;
using ir::Tags;
using ir::TrainingDag;
using ir::ValueId;

namespace {

// The annotated DAG, and the one with placements and recomputation when it came that far.
struct Stages {
  std::optional<TrainingDag> annotated, placed;
};

std::string tag_text(const Tags& tags) { return tags.empty() ? "-" : ir::to_string(tags); }

// ---- Tags by module ----

// The tags of everything in a module when they are equal.
class TagRows {
 public:
  TagRows(const Model& model, const TrainingDag& dag) : model_(model) {
    for (size_t i = 0; i < model.ops.size(); i++) by_path_[model.ops[i].path].insert(tag_text(dag.op_tags[i]));
  }

  std::string text(const Style& style) {
    Table table({{"module", false, 9}, {"tags", false, 8}});
    const Module root = module_tree(model_, {}, true);
    add(root, 0, table);
    return table.text(style);
  }

 private:
  // Of a module and what is in it.
  std::set<std::string> below(const Module& module) const {
    std::set<std::string> tags = own(module);
    for (const auto& child : module.children) tags.merge(below(*child));
    return tags;
  }
  std::set<std::string> own(const Module& module) const {
    const auto it = by_path_.find(module.path);
    return it == by_path_.end() ? std::set<std::string>() : it->second;
  }
  static std::string joined(const std::set<std::string>& tags) {
    return support::join({tags.begin(), tags.end()}, " | ");
  }

  void add(const Module& module, int depth, Table& table) {
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    const std::set<std::string> all = below(module);
    const bool uniform = all.size() <= 1;
    table.add({indent + module.name, uniform               ? joined(all)
                                     : own(module).empty() ? ""
                                                           : joined(own(module)) + " (by itself)"});
    if (uniform) return;
    for (const auto& child : module.children) {
      if (is_list(*child))
        add_items(*child, depth + 1, table);
      else
        add(*child, depth + 1, table);
    }
  }

  // Items of a list: those in a row that have equal tags are one row.
  void add_items(const Module& list, int depth, Table& table) {
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    for (size_t begin = 0; begin < list.children.size();) {
      const std::set<std::string> tags = below(*list.children[begin]);
      size_t end = begin + 1;
      while (end < list.children.size() && below(*list.children[end]) == tags) end++;
      std::vector<int64_t> numbers;
      for (size_t i = begin; i < end; i++) numbers.push_back(std::stoll(list.children[i]->name));
      std::sort(numbers.begin(), numbers.end());
      table.add({indent + list.name + "." +
                     (numbers.size() == 1 ? std::to_string(numbers[0]) : "{" + number_ranges(numbers) + "}"),
                 joined(tags)});
      begin = end;
    }
  }

  const Model& model_;
  std::map<std::string, std::set<std::string>> by_path_;
};

// ---- Adoption ----

// Operations that no rule named, with what became of them.
class Adopted {
 public:
  Adopted(const Model& model, const ir::Strategy& strategy, const TrainingDag& dag) : model_(model), dag_(dag) {
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

  std::string text(const Style& style) const {
    if (rows_.empty()) return "";
    Table table({{"adopted", false, 9}, {"operations", false, 7}, {"by", false, 8}, {"because", false, 6}});
    for (const auto& [key, kinds] : rows_)
      table.add({key.path.empty() ? "(model)" : key.path, summary(kinds), key.region, key.why});
    return "\n" + table.text(style);
  }

 private:
  struct Key {
    size_t first;
    std::string path, region, why;
    bool operator<(const Key& other) const {
      return std::tie(first, path, region, why) < std::tie(other.first, other.path, other.region, other.why);
    }
  };

  void add(size_t i) {
    const Op& op = model_.ops[i];
    Key key{0, op.path, tag_text(dag_.op_tags[i]), ""};
    const auto clones = clones_.find(op.kind + " " + op.name);
    if (clones != clones_.end()) {
      for (const std::string& region : clones->second) key.region += " + " + region;
      key.why = "each reads it, and it depends on no parameter: copied";
    } else {
      key.why = read_elsewhere(OpId(static_cast<int64_t>(i))) ? "made from what is made there; its readers disagree"
                                                              : "only read there";
    }
    const auto known = order_.try_emplace(key.path + "|" + key.region + "|" + key.why, order_.size()).first;
    key.first = known->second;
    rows_[key].push_back(op.kind);
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

  static std::string summary(const std::vector<std::string>& kinds) {
    std::map<std::string, int> counts;
    for (const std::string& kind : kinds) counts[kind]++;
    std::vector<std::string> parts;
    for (const auto& [kind, count] : counts) parts.push_back(count == 1 ? kind : fmt::format("{} {}", count, kind));
    if (parts.size() > 4) {
      parts.resize(4);
      parts.push_back("...");
    }
    return support::join(parts, ", ");
  }

  const Model& model_;
  const TrainingDag& dag_;
  std::vector<std::set<std::string>> named_;
  std::map<std::string, std::set<std::string>> clones_;
  std::map<std::string, size_t> order_;
  std::map<Key, std::vector<std::string>> rows_;
};

// ---- Chunks ----

struct Cost {
  double forward = 0, backward = 0;
  int64_t ops = 0, saved = 0;
  std::set<int32_t> params;
  void operator+=(const Cost& other) {
    forward += other.forward;
    backward += other.backward;
    ops += other.ops;
    saved += other.saved;
    params.insert(other.params.begin(), other.params.end());
  }
};

Cost cost_of(const TrainingDag& dag, const ir::Chunk& chunk) {
  Cost cost;
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

std::vector<std::string> cost_cells(const TrainingDag& dag, const Cost& cost, double total) {
  const double sum = cost.forward + cost.backward;
  return {std::to_string(cost.ops),
          std::to_string(param_elements(dag.model, cost.params)),
          human_flops(cost.forward),
          human_flops(cost.backward),
          total > 0 ? fmt::format("{:.1f}%", 100 * sum / total) : "",
          support::human_bytes(cost.saved)};
}

std::string chunks_text(const TrainingDag& dag, const Style& style) {
  std::vector<std::string> places(dag.chunks.size());
  std::map<std::string, Cost> by_place;
  std::vector<Cost> costs;
  double total = 0;
  for (const ir::Chunk& chunk : dag.chunks) {
    costs.push_back(cost_of(dag, chunk));
    total += costs.back().forward + costs.back().backward;
  }
  std::set<std::pair<size_t, std::string>> seen;
  for (const ir::Node& node : dag.nodes) {
    if (node.kind != ir::NodeKind::kCompute || node.pass != ir::Pass::kForward || !node.placement.valid()) continue;
    const std::string& name = dag.placements[node.placement.index()].name;
    const size_t c = node.chunk.index();
    if (!seen.insert({c, name}).second) continue;
    places[c] += (places[c].empty() ? "" : " + ") + name;
    by_place[name] += costs[c];
  }
  const std::vector<Column> columns = {
      {"", false, 9},        {"operations", true, 2}, {"parameters", true, 5},   {"forward FLOPs/sample", true, 6},
      {"backward", true, 4}, {"share", true, 7},      {"saved/sample", true, 3}, {"placed on", false, 8}};
  Table chunks(columns), devices(columns);
  for (size_t c = 0; c < dag.chunks.size(); c++) {
    std::vector<std::string> row = cost_cells(dag, costs[c], total);
    row.insert(row.begin(), dag.chunks[c].name.empty() ? "(all)" : dag.chunks[c].name);
    row.push_back(places[c]);
    chunks.add(std::move(row));
  }
  for (const auto& [name, cost] : by_place) {
    std::vector<std::string> row = cost_cells(dag, cost, total);
    row.insert(row.begin(), name);
    row.push_back("");
    devices.add(std::move(row));
  }
  return "\n" + bold("chunks", style) + "\n" + chunks.text(style) + "\n" + bold("devices", style) + "\n" +
         devices.text(style);
}

}  // namespace

std::string inspect_strategy(const Model& model, const ir::Strategy& strategy, const Style& style,
                             support::Diagnostics& diagnostics) {
  Stages stages;
  passes::run_passes(
      model, strategy, diagnostics,
      [&](const std::string& pass, const TrainingDag& dag) {
        if (pass == "annotate") stages.annotated = dag;
        if (pass == "recompute") stages.placed = dag;
      },
      "recompute");
  if (!stages.annotated) return "";
  std::string text = TagRows(model, *stages.annotated).text(style);
  text += Adopted(model, strategy, *stages.annotated).text(style);
  if (stages.placed) text += chunks_text(*stages.placed, style);
  return text;
}

}  // namespace piper::inspect
