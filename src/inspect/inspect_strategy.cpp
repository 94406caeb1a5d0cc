#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "inspect/inspect.h"
#include "inspect/module_tree.h"
#include "support/strings.h"

namespace piper::inspect {

namespace {

// The tags of everything in a module when they are equal.
class TagRows {
 public:
  TagRows(const ir::Model& model, const StrategyFacts& facts) : model_(model), by_path_(facts.tags) {}

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

  const ir::Model& model_;
  const std::map<std::string, std::set<std::string>>& by_path_;
};

std::string summary(const std::vector<std::string>& kinds) {
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


std::string adopted_text(const StrategyFacts& facts, const Style& style) {
  if (facts.adopted.empty()) return "";
  Table table({{"adopted", false, 9}, {"operations", false, 7}, {"by", false, 8}, {"because", false, 6}});
  for (const Adoption& row : facts.adopted)
    table.add({row.path.empty() ? "(model)" : row.path, summary(row.kinds), support::join(row.regions, " + "), row.why});
  return "\n" + table.text(style);
}

std::vector<std::string> cells(const ChunkFacts& facts, double total) {
  const double sum = facts.cost.forward + facts.cost.backward;
  return {facts.name,
          std::to_string(facts.cost.ops),
          std::to_string(facts.parameters),
          human_flops(facts.cost.forward),
          human_flops(facts.cost.backward),
          total > 0 ? fmt::format("{:.1f}%", 100 * sum / total) : "",
          support::human_bytes(facts.cost.saved),
          support::join(facts.places, " + ")};
}

std::string chunks_text(const StrategyFacts& facts, const Style& style) {
  double total = 0;
  for (const ChunkFacts& chunk : facts.chunks) total += chunk.cost.forward + chunk.cost.backward;
  const std::vector<Column> columns = {
      {"", false, 9},        {"operations", true, 2}, {"parameters", true, 5},   {"forward FLOPs/sample", true, 6},
      {"backward", true, 4}, {"share", true, 7},      {"saved/sample", true, 3}, {"placed on", false, 8}};
  Table chunks(columns), devices(columns);
  for (const ChunkFacts& chunk : facts.chunks) chunks.add(cells(chunk, total));
  for (const ChunkFacts& device : facts.devices) devices.add(cells(device, total));
  return "\n" + bold("chunks", style) + "\n" + chunks.text(style) + "\n" + bold("devices", style) + "\n" +
         devices.text(style);
}

}  // namespace

std::string strategy_text(const ir::Model& model, const StrategyFacts& facts, const Style& style) {
  std::string text = TagRows(model, facts).text(style) + adopted_text(facts, style);
  if (!facts.chunks.empty()) text += chunks_text(facts, style);
  return text;
}

}  // namespace piper::inspect
