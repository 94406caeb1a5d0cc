#include "passes/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "support/strings.h"

namespace piper::passes {

using ir::Constraint;
using ir::Node;
using ir::Pass;
using ir::Selector;
using ir::Tags;

bool matches(const Selector& selector, const Tags& tags, const std::string& ignore) {
  return std::all_of(selector.constraints.begin(), selector.constraints.end(), [&](const Constraint& c) {
    if (!ignore.empty() && c.tag == ignore) return true;
    const auto it = tags.find(c.tag);
    switch (c.kind) {
      case Constraint::Kind::kPresent: return it != tags.end();
      case Constraint::Kind::kAbsent: return it == tags.end();
      case Constraint::Kind::kOneOf:
        return it != tags.end() && std::binary_search(c.values.begin(), c.values.end(), it->second);
    }
    return false;
  });
}

bool matches(const Selector& selector, const Node& node) {
  uint32_t bit = 0;
  if (node.pass == Pass::kForward) bit = ir::kPassF;
  if (node.pass == Pass::kBackward) bit = ir::kPassB;
  if (node.pass == Pass::kInputGrad) bit = ir::kPassI | ir::kPassB;  // B of a split backward stands for I and W
  if (node.pass == Pass::kWeightGrad) bit = ir::kPassW | ir::kPassB;
  if (node.pass == Pass::kUpdate) bit = ir::kPassU;
  return (selector.passes & bit) != 0 && matches(selector, node.tags);
}

namespace {

// "0..8" for consecutive values, else a list.
std::string values_text(const std::set<int64_t>& values) {
  if (values.empty()) return "none";
  const int64_t first = *values.begin(), last = *values.rbegin();
  if (last - first + 1 == static_cast<int64_t>(values.size())) return fmt::format("{}..{}", first, last + 1);
  std::vector<std::string> parts;
  for (int64_t v : values) parts.push_back(std::to_string(v));
  return support::join(parts, ", ");
}

}  // namespace

bool cuts_batch(const ir::Strategy& strategy) {
  return (strategy.split && strategy.split->count > 1) ||
         std::any_of(strategy.replicates.begin(), strategy.replicates.end(),
                     [&](const ir::Replicate& r) { return strategy.mesh.axes[static_cast<size_t>(r.axis)].size > 1; });
}

void report_no_match(const ir::TrainingDag& dag, const Selector& selector, support::Diagnostics& diagnostics) {
  support::Diagnostic& d = diagnostics.report(support::Code::E0504, selector.span,
                                              fmt::format("`{}` matches nothing", to_string(selector)));
  for (const Constraint& c : selector.constraints) {
    std::set<int64_t> values;
    for (const Node& node : dag.nodes) {
      const auto it = node.tags.find(c.tag);
      if (it != node.tags.end()) values.insert(it->second);
    }
    d.note(values.empty() ? fmt::format("no operation has the tag `{}`", c.tag)
                          : fmt::format("the values of `{}` are {}", c.tag, values_text(values)));
  }
}

}  // namespace piper::passes
