// order: each `order` list becomes edges: on every device, all nodes of one element run before all of the next.
//
//   order [F(stage = 0, mb = 0), F(stage = 0, mb = 1), B(stage = 0, mb = 0)]
//   ->  F(stage=0, mb=0) < F(stage=0, mb=1),   F(stage=0, mb=1) < B(stage=0, mb=0)
//
// Orders are conjunctions: their text order does not matter. A contradiction with each other or with the data flow is an
// error that shows the cycle. The members of a group `x | y` with experts inside are not ordered among each other:
// schedule_compute lets one compute while the other's rows travel.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "passes/pipeline.h"
#include "passes/select.h"

namespace piper::passes {

using ir::NodeId;
using ir::NodeKind;
using support::Code;

namespace {

// Nodes by their tag values, so that a selector with constants need not look at every node.
class NodeIndex {
 public:
  explicit NodeIndex(const TrainingDag& dag) : dag_(dag) {
    for (size_t i = 0; i < dag.nodes.size(); ++i) {
      if (dag.nodes[i].kind != NodeKind::kCompute) continue;
      all_.push_back(NodeId(static_cast<int64_t>(i)));
      for (const auto& [tag, value] : dag.nodes[i].tags) by_tag_[{tag, value}].push_back(all_.back());
    }
  }

  std::vector<NodeId> select(const ir::Selector& selector) const {
    const std::vector<NodeId>* candidates = &all_;
    static const std::vector<NodeId> kNone;
    for (const ir::Constraint& c : selector.constraints) {
      if (c.kind != ir::Constraint::Kind::kOneOf || c.values.size() != 1) continue;
      const auto it = by_tag_.find({c.tag, c.values.front()});
      const std::vector<NodeId>* list = it == by_tag_.end() ? &kNone : &it->second;
      if (list->size() < candidates->size()) candidates = list;
    }
    std::vector<NodeId> found;
    for (NodeId id : *candidates) {
      if (matches(selector, dag_.node(id))) found.push_back(id);
    }
    return found;
  }

 private:
  const TrainingDag& dag_;
  std::vector<NodeId> all_;
  std::map<std::pair<std::string, int64_t>, std::vector<NodeId>> by_tag_;
};

// Members of a group: side by side where one exchanges something that the others can hide, else left, then right.
// Whether that is so.
bool add_group(TrainingDag& dag, const std::vector<std::vector<NodeId>>& members, int32_t order_index, int32_t group) {
  bool hides = false;
  for (const std::vector<NodeId>& nodes : members) {
    hides = hides || std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) { return dag.node(id).tags.count(ir::kExpertTag) > 0; });
  }
  for (size_t m = 0; m < members.size(); ++m) {
    for (NodeId after : members[m]) {
      if (hides) dag.node(after).overlap = group;
      if (hides || m == 0) continue;
      for (NodeId before : members[m - 1]) {
        if (ir::overlap(dag.placements[dag.node(before).placement.index()], dag.placements[dag.node(after).placement.index()])) {
          dag.orders.push_back({before, after, order_index});
        }
      }
    }
  }
  return hides;
}

// What all orders have together.
struct Orders {
  std::vector<int32_t> named;  // by node: the first order that names it, -1 when none does
  int32_t groups = 0;
  int32_t idle = -1;           // the first order with a group that has nothing to hide
};

void add_order(TrainingDag& dag, const NodeIndex& index, const ir::Order& order, int32_t order_index, Orders& all,
               Diagnostics& diagnostics) {
  // The last element's nodes on each placement; an element orders against the last one that shares a device.
  std::vector<std::vector<NodeId>> previous(dag.placements.size());
  for (const ir::OrderElement& element : order.elements) {
    std::vector<NodeId> nodes;
    std::vector<std::vector<NodeId>> members;
    for (const ir::Selector& selector : element.selectors) {
      members.push_back(index.select(selector));
      if (members.back().empty()) {
        report_no_match(dag, selector, diagnostics);
        return;
      }
      nodes.insert(nodes.end(), members.back().begin(), members.back().end());
    }
    if (members.size() > 1 && !add_group(dag, members, order_index, all.groups++) && all.idle < 0) all.idle = order_index;
    std::vector<std::vector<NodeId>> current(dag.placements.size());
    for (NodeId id : nodes) {
      current[dag.node(id).placement.index()].push_back(id);
      if (all.named[id.index()] < 0) all.named[id.index()] = order_index;
    }
    for (size_t p = 0; p < current.size(); ++p) {
      if (current[p].empty()) continue;
      for (size_t q = 0; q < previous.size(); ++q) {
        if (previous[q].empty() || !ir::overlap(dag.placements[p], dag.placements[q])) continue;
        for (NodeId before : previous[q]) {
          for (NodeId after : current[p]) dag.orders.push_back({before, after, order_index});
        }
      }
    }
    for (size_t p = 0; p < current.size(); ++p) {
      if (!current[p].empty()) previous[p] = std::move(current[p]);
    }
  }
}

// A split backward of which an order names one half only: the other would run whenever there is time, which nobody means.
void check_halves(const TrainingDag& dag, const Strategy& strategy, const std::vector<int32_t>& named, Diagnostics& diagnostics) {
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    if (dag.nodes[i].pass != ir::Pass::kWeightGrad) continue;
    const NodeId weights(static_cast<int64_t>(i)), inputs = dag.nodes[i].inputs.back();  // I is W's last input
    const int32_t with = std::max(named[weights.index()], named[inputs.index()]);
    if (with < 0 || (named[weights.index()] >= 0 && named[inputs.index()] >= 0)) continue;
    const bool lacks_weights = named[weights.index()] < 0;
    diagnostics
        .report(Code::E0516, strategy.orders[static_cast<size_t>(with)].span,
                fmt::format("{} is ordered and {} is not", describe(dag, lacks_weights ? inputs : weights),
                            describe(dag, lacks_weights ? weights : inputs)))
        .help(fmt::format("name {} too, or the whole backward as `B`", lacks_weights ? "W" : "I"));
    return;  // the others would say the same
  }
}

struct Successor {
  NodeId node;
  int32_t order = -1;  // -1: data flow
};

std::vector<std::vector<Successor>> successors(const TrainingDag& dag) {
  std::vector<std::vector<Successor>> next(dag.nodes.size());
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    for (NodeId in : dag.nodes[i].inputs) next[in.index()].push_back({NodeId(static_cast<int64_t>(i)), -1});
  }
  for (const ir::OrderEdge& e : dag.orders) next[e.before.index()].push_back({e.after, e.order});
  return next;
}

// A cycle as (node, reason of the edge that leaves it), or empty.
std::vector<Successor> find_cycle(const TrainingDag& dag) {
  const auto next = successors(dag);
  const size_t n = dag.nodes.size();
  std::vector<int> missing(n, 0);
  for (const auto& list : next) {
    for (const Successor& s : list) ++missing[s.node.index()];
  }
  std::vector<size_t> ready;
  for (size_t i = 0; i < n; ++i) {
    if (missing[i] == 0) ready.push_back(i);
  }
  size_t done = 0;
  while (!ready.empty()) {
    const size_t i = ready.back();
    ready.pop_back();
    ++done;
    for (const Successor& s : next[i]) {
      if (--missing[s.node.index()] == 0) ready.push_back(s.node.index());
    }
  }
  if (done == n) return {};
  // What is left has a cycle behind every node: follow predecessors that are left until one repeats.
  std::vector<Successor> predecessor(n);
  for (size_t i = 0; i < n; ++i) {
    if (missing[i] == 0) continue;
    for (const Successor& s : next[i]) {
      if (missing[s.node.index()] > 0) predecessor[s.node.index()] = {NodeId(static_cast<int64_t>(i)), s.order};
    }
  }
  size_t at = 0;
  while (missing[at] == 0) ++at;
  std::vector<int> visited(n, -1);
  std::vector<Successor> path;
  while (visited[at] < 0) {
    visited[at] = static_cast<int>(path.size());
    path.push_back({NodeId(static_cast<int64_t>(at)), predecessor[at].order});
    at = predecessor[at].node.index();
  }
  std::vector<Successor> cycle(path.begin() + visited[at], path.end());
  // path[k].order is the reason of the edge into path[k]; it comes from path[k+1].
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

void report_cycle(const TrainingDag& dag, const Strategy& strategy, const std::vector<Successor>& cycle, Diagnostics& diagnostics) {
  support::SourceSpan span;
  for (const Successor& s : cycle) {
    if (s.order >= 0 && !span.valid()) span = strategy.orders[static_cast<size_t>(s.order)].span;
  }
  auto& d = diagnostics.report(Code::E0505, span, "the orders cannot all hold: they form a cycle");
  // Entry k's reason is the edge from entry k-1 into it (cyclically).
  for (size_t k = 0; k < cycle.size(); ++k) {
    const Successor& to = cycle[k];
    const Successor& from = cycle[(k + cycle.size() - 1) % cycle.size()];
    const std::string reason =
        to.order < 0 ? "needs its result" : fmt::format("by the order at {}", diagnostics.sources().describe(strategy.orders[static_cast<size_t>(to.order)].span));
    d.note(fmt::format("{} before {}: {}", describe(dag, from.node), describe(dag, to.node), reason));
    if (k == 11 && cycle.size() > 13) {
      d.note(fmt::format("… and {} more", cycle.size() - k - 1));
      break;
    }
  }
  const size_t devices = strategy.orders.size();
  d.help(devices > 1 ? "each device's order must be possible together with those of the others" : "");
  if (d.helps.back().empty()) d.helps.pop_back();
}

void warn_of_group(const ir::Order& order, Diagnostics& diagnostics) {
  diagnostics.report(Code::W0502, order.span, "the members of a group `x | y` communicate nothing inside: left runs before right")
      .help("a group hides what experts send behind the other member's compute");
}

}  // namespace

void order(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  const NodeIndex index(dag);
  Orders all;
  all.named.assign(dag.nodes.size(), -1);
  for (size_t o = 0; o < strategy.orders.size(); ++o) add_order(dag, index, strategy.orders[o], static_cast<int32_t>(o), all, diagnostics);
  if (!diagnostics.has_errors()) check_halves(dag, strategy, all.named, diagnostics);
  if (diagnostics.has_errors()) return;
  const std::vector<Successor> cycle = find_cycle(dag);
  if (!cycle.empty()) return report_cycle(dag, strategy, cycle, diagnostics);
  if (all.idle >= 0) warn_of_group(strategy.orders[static_cast<size_t>(all.idle)], diagnostics);
}

}  // namespace piper::passes
