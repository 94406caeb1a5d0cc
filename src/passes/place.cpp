// place: a placement for every node, and the holders of every parameter.
//
//   place all(stage = 0) on dev[pp = 0]   ->   F(stage=0, mb=0) on pp=0, B(stage=0, mb=0) on pp=0
//
// After microbatch, since a `place` may name the split dimension: one chunk then lives in two placements, both hold its
// parameters, and their gradients are summed like those of replicas.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/shares.h"
#include "passes/coupling.h"
#include "passes/pipeline.h"
#include "passes/select.h"
#include "support/strings.h"

namespace piper::passes {

using ir::Node;
using ir::NodeKind;
using ir::Placement;
using ir::PlacementId;
using support::Code;

namespace {

class Placer {
 public:
  Placer(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics)
      : dag_(dag), strategy_(strategy), diagnostics_(diagnostics), used_(strategy.places.size(), false) {}

  void run() {
    for (Node& node : dag_.nodes) {
      if (node.kind == NodeKind::kCompute) place_node(node);
    }
    report_unplaced();
    for (size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) report_no_match(dag_, strategy_.places[i].selector, diagnostics_);
    }
    if (diagnostics_.has_errors()) return;
    find_holders();
    check_axes();
    check_shares();
  }

 private:
  PlacementId intern(const ir::DeviceSet* devices) {
    Placement p;
    if (devices) p.fixed = devices->fixed;
    // An axis of size 1 has only one coordinate: fixing it makes equal sets compare equal.
    for (int a = 0; a < static_cast<int>(dag_.mesh.axes.size()); ++a) {
      const bool fixed = std::any_of(p.fixed.begin(), p.fixed.end(), [a](const auto& f) { return f.first == a; });
      if (!fixed && dag_.mesh.axes[static_cast<size_t>(a)].size == 1) p.fixed.emplace_back(a, 0);
    }
    std::sort(p.fixed.begin(), p.fixed.end());
    std::vector<std::string> parts;
    for (const auto& [axis, at] : p.fixed) {
      if (dag_.mesh.axes[static_cast<size_t>(axis)].size > 1) {
        parts.push_back(fmt::format("{}={}", dag_.mesh.axes[static_cast<size_t>(axis)].name, at));
      }
    }
    p.name = parts.empty() ? dag_.mesh.name : support::join(parts, ",");
    const auto [it, fresh] = ids_.try_emplace(p.fixed, PlacementId(static_cast<int64_t>(dag_.placements.size())));
    if (fresh) dag_.placements.push_back(std::move(p));
    return it->second;
  }

  void place_node(Node& node) {
    if (strategy_.places.empty()) {
      node.placement = intern(nullptr);
      return;
    }
    int found = -1;
    for (size_t i = 0; i < strategy_.places.size(); ++i) {
      if (!matches(strategy_.places[i].selector, node.tags)) continue;
      used_[i] = true;
      if (found >= 0) return report_twice(node, static_cast<size_t>(found), i);
      found = static_cast<int>(i);
    }
    if (found < 0) {
      unplaced_.emplace(node.chunk, node.tags);
      return;
    }
    node.placement = intern(&strategy_.places[static_cast<size_t>(found)].devices);
    node.stream = strategy_.places[static_cast<size_t>(found)].p2p_stream;
    node.span = strategy_.places[static_cast<size_t>(found)].span;
  }

  void report_twice(const Node& node, size_t first, size_t second) {
    if (!reported_.insert({first, second}).second) return;
    diagnostics_.report(Code::E0502, strategy_.places[second].span, fmt::format("operations with {} are placed twice", ir::to_string(node.tags)))
        .label(strategy_.places[first].span, "first placed here");
  }

  void report_unplaced() {
    if (unplaced_.empty()) return;
    auto& d = diagnostics_.report(Code::E0501, strategy_.places.front().span, "some operations are matched by no `place`");
    int shown = 0;
    for (const auto& [c, tags] : unplaced_) {
      for (ir::OpId op : dag_.chunk(c).forward) {
        if (++shown > 8) break;
        const ir::Op& o = dag_.model.op(op);
        d.note(fmt::format("`{}` ({}, path `{}`) with tags {{{}}}", o.name, o.kind, o.path, ir::to_string(tags)));
      }
    }
    d.help("add a `tag … where path \"…\"` rule that covers them, or a `place` for their tags");
  }

  void find_holders() {
    dag_.param_holders.assign(dag_.model.params.size(), {});
    for (const Node& node : dag_.nodes) {
      if (node.kind != NodeKind::kCompute || node.pass != ir::Pass::kForward) continue;
      for (ir::ParamId p : dag_.chunk(node.chunk).params) {
        auto& holders = dag_.param_holders[p.index()];
        if (std::find(holders.begin(), holders.end(), node.placement) == holders.end()) holders.push_back(node.placement);
      }
    }
    for (auto& holders : dag_.param_holders) std::sort(holders.begin(), holders.end());
  }

  // Every axis that a node spans must be given a meaning by a directive that matches the node.
  void check_axes() {
    std::set<int> reported;
    std::vector<char> replicate_used(strategy_.replicates.size(), false);
    for (const Node& node : dag_.nodes) {
      if (node.kind != NodeKind::kCompute) continue;
      for (size_t i = 0; i < strategy_.replicates.size(); ++i) {
        if (matches(strategy_.replicates[i].selector, node.tags)) replicate_used[i] = true;
      }
      for (int axis : ir::spanned_axes(dag_.mesh, dag_.placements[node.placement.index()])) {
        const bool explained = std::any_of(strategy_.replicates.begin(), strategy_.replicates.end(), [&](const ir::Replicate& r) {
          return r.axis == axis && matches(r.selector, node.tags);
        });
        if (explained || !reported.insert(axis).second) continue;
        const std::string& name = dag_.mesh.axes[static_cast<size_t>(axis)].name;
        const std::string what = dag_.chunk(node.chunk).tags.empty() ? "the model" : ir::to_string(dag_.chunk(node.chunk).tags);
        diagnostics_.report(Code::E0503, node.span.valid() ? node.span : dag_.mesh.axes[static_cast<size_t>(axis)].span,
                            fmt::format("{} spans axis `{}`, but nothing says what `{}` does there", what, name, name))
            .help(fmt::format("add `replicate … over {}`", name));
      }
    }
    for (size_t i = 0; i < replicate_used.size(); ++i) {
      const ir::Replicate& r = strategy_.replicates[i];
      if (!replicate_used[i]) report_no_match(dag_, r.selector, diagnostics_);
      else check_replicate(r);
    }
  }

  // An axis along which every node stands at one place holds no replicas; what is never gathered has nothing to prefetch.
  void check_replicate(const ir::Replicate& r) {
    const ir::Axis& axis = dag_.mesh.axes[static_cast<size_t>(r.axis)];
    const bool spanned = std::any_of(dag_.nodes.begin(), dag_.nodes.end(), [&](const Node& node) {
      if (node.kind != NodeKind::kCompute || !matches(r.selector, node.tags)) return false;
      const std::vector<int> axes = ir::spanned_axes(dag_.mesh, dag_.placements[node.placement.index()]);
      return std::find(axes.begin(), axes.end(), r.axis) != axes.end();
    });
    if (axis.size > 1 && !spanned) {
      diagnostics_
          .report(Code::E0517, r.span, fmt::format("`{}` is no data axis of what this replicates: every operation is placed at one coordinate of it", axis.name))
          .help("replicate over an axis that the places leave open");
    }
    if (r.prefetch && r.zero < 3) {
      diagnostics_.report(Code::E0518, r.span, fmt::format("`prefetch {}` at `zero {}`: nothing is gathered before its use", *r.prefetch, r.zero))
          .help("parameters are gathered with `zero 3`");
    }
  }

  void check_shares() {
    for (const Placement& p : dag_.placements) {
      const int64_t degree = ir::data_degree(dag_.mesh, p);
      const int64_t smallest = strategy_.train.batch / dag_.microbatches;
      if (smallest >= degree) continue;
      diagnostics_.report(Code::E0506, strategy_.split ? strategy_.split->span : strategy_.train.span,
                          fmt::format("a batch of {} in {} microbatches over {} data-parallel devices ({}) leaves some without a sample",
                                      strategy_.train.batch, dag_.microbatches, degree, p.name))
          .help(fmt::format("use a batch of at least {}", degree * dag_.microbatches));
      return;
    }
  }

  TrainingDag& dag_;
  const Strategy& strategy_;
  Diagnostics& diagnostics_;
  std::vector<char> used_;
  std::map<std::vector<std::pair<int, int64_t>>, PlacementId> ids_;
  std::map<ir::ChunkId, ir::Tags> unplaced_;  // with the tags of the first node that has no place
  std::set<std::pair<size_t, size_t>> reported_;
};

}  // namespace

void place(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  Placer(dag, strategy, diagnostics).run();
  if (!diagnostics.has_errors()) check_groups(dag, strategy, diagnostics);
}

}  // namespace piper::passes
