#include "inspect/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "support/strings.h"

namespace piper::inspect {

using ir::Model;
using ir::ValueId;

namespace {

// A rule with the module it speaks of.
struct Unit {
  const Module* module = nullptr;
  bool list = false;
  double flops() const { return module->flops; }
  int64_t count() const { return list ? static_cast<int64_t>(module->children.size()) : 1; }
};

bool holds_list(const Module& module) {
  if (is_list(module) && module.children.size() >= 2) return true;
  return std::any_of(module.children.begin(), module.children.end(),
                     [](const auto& below) { return holds_list(*below); });
}

// Splits a module into lists and modules without any, in order of first use. `items_with_lists`: lists whose items hold
// lists are taken apart too.
void collect(const Module& module, bool items_with_lists, std::vector<Unit>& units) {
  for (const auto& below : module.children) {
    const bool list = is_list(*below) && below->children.size() >= 2;
    const bool nested = list && std::any_of(below->children.begin(), below->children.end(),
                                            [](const auto& item) { return holds_list(*item); });
    if (list && !(nested && items_with_lists))
      units.push_back({below.get(), true});
    else if (holds_list(*below))
      collect(*below, items_with_lists, units);
    else
      units.push_back({below.get(), false});
  }
}

std::vector<LayerRule> rules_of(std::vector<Unit> units) {
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.module->first_op < b.module->first_op; });
  std::vector<LayerRule> rules;
  int64_t next = 0;
  for (const Unit& unit : units) {
    LayerRule rule;
    rule.path = unit.module->path;
    rule.offset = next;
    if (unit.list) {
      for (const auto& item : unit.module->children) rule.numbers.push_back(std::stoll(item->name));
      std::sort(rule.numbers.begin(), rule.numbers.end());
    }
    next += unit.list ? rule.numbers.back() + 1 : 1;
    rules.push_back(std::move(rule));
  }
  return rules;
}

int64_t count_of(const std::vector<LayerRule>& rules) {
  int64_t count = 0;
  for (const LayerRule& rule : rules) count += rule.numbers.empty() ? 1 : static_cast<int64_t>(rule.numbers.size());
  return count;
}

// Whether values only flow from a layer to itself or later ones.
bool runs_forward(const Model& model, const std::vector<LayerRule>& rules) {
  std::vector<int64_t> latest(model.values.size(), -1);
  for (const ir::Op& op : model.ops) {
    int64_t before = -1, own = -1;
    for (ValueId v : op.inputs) {
      if (v.valid()) before = std::max(before, latest[v.index()]);
    }
    for (const LayerRule& rule : rules) {
      const auto match = support::match_path_glob(rule.glob(), op.path);
      if (!match) continue;
      own = rule.offset + (match->captures.empty() ? 0 : match->captures[0].second);
      break;
    }
    if (own >= 0 && own < before) return false;
    for (ValueId v : op.outputs) latest[v.index()] = std::max(before, own);
  }
  return true;
}

double share_of_lists(const std::vector<Unit>& units, double total) {
  double flops = 0;
  for (const Unit& unit : units) flops += unit.list ? unit.flops() : 0;
  return total > 0 ? flops / total : 0;
}

}  // namespace

std::string LayerRule::glob() const { return path + (numbers.empty() ? ".**" : path.empty() ? "{i}.**" : ".{i}.**"); }

std::string LayerRule::value() const {
  if (numbers.empty()) return std::to_string(offset);
  return offset == 0 ? "i" : fmt::format("{} + i", offset);
}

std::vector<LayerRule> outermost_lists(const Module& root) {
  std::vector<Unit> units;
  if (is_list(root) && root.children.size() >= 2)
    units.push_back({&root, true});
  else
    collect(root, false, units);
  std::erase_if(units, [](const Unit& unit) { return !unit.list; });
  return rules_of(units);
}

Layers find_layers(const Model& model, const Module& root, int64_t stages) {
  // From the plainest rules to the finest.
  std::vector<std::vector<LayerRule>> attempts;
  if (is_list(root) && root.children.size() >= 2) attempts.push_back(rules_of({{&root, true}}));
  for (bool items_with_lists : {false, true}) {
    std::vector<Unit> units;
    collect(root, items_with_lists, units);
    std::vector<Unit> lists = units;
    std::erase_if(lists, [](const Unit& unit) { return !unit.list; });
    constexpr double kMostOfIt = 0.5;
    const bool most = share_of_lists(units, root.flops) >= kMostOfIt;
    attempts.push_back(rules_of(most ? lists : units));
  }
  // A model without lists is most often one module deep down: the modules in it.
  const Module* inner = &root;
  while (inner->children.size() == 1) inner = inner->children[0].get();
  std::vector<Unit> parts;
  for (const auto& below : inner->children) parts.push_back({below.get(), false});
  if (!holds_list(root)) attempts.push_back(rules_of(parts));

  Layers best;
  for (auto& rules : attempts) {
    const int64_t count = count_of(rules);
    if (count < 2 || count <= best.count || !runs_forward(model, rules)) continue;
    best.rules = std::move(rules);
    best.count = count;
    if (count >= stages) break;
  }
  if (best.count == 0) {
    best.problem =
        root.children.empty() ? "the file has no module paths" : "the file has no modules that run one after the other";
  }
  return best;
}

}  // namespace piper::inspect
