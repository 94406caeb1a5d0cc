// schedule_compute: one order of all compute nodes, such that every device's order is a projection of it.
//
// List scheduling in virtual time: of the nodes whose inputs and order predecessors are done, the one that can start first
// runs next. Where orders leave a choice, a backward goes before a forward, weight gradients go last, and an earlier
// microbatch goes before a later one (depth first: few microbatches are alive at once). In an overlap group rows that travel
// take longer than none, so the members take turns: one computes while the other waits for rows. After order; before
// replicate, which needs to know what is last.
#include <algorithm>
#include <map>
#include <queue>

#include "passes/costs.h"
#include "passes/pipeline.h"
#include "support/error.h"

namespace piper::passes {

using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::PlacementId;

namespace {

class ListScheduler {
 public:
  ListScheduler(TrainingDag& dag, int64_t batch) : dag_(dag), costs_(node_costs(dag, batch)) {
    const size_t n = dag.nodes.size();
    next_.resize(n);
    missing_.assign(n, 0);
    earliest_.assign(n, 0);
    for (size_t i = 0; i < n; ++i) {
      for (NodeId in : dag.nodes[i].inputs) add_edge(in.index(), i);
    }
    for (const ir::OrderEdge& e : dag.orders) add_edge(e.before.index(), e.after.index());
    free_at_.assign(dag.placements.size(), 0);
    for (size_t p = 0; p < dag.placements.size(); ++p) {
      std::vector<size_t> shared;
      for (size_t q = 0; q < dag.placements.size(); ++q) {
        if (ir::overlap(dag.placements[p], dag.placements[q])) shared.push_back(q);
      }
      overlaps_.push_back(std::move(shared));
    }
  }

  void run() {
    for (size_t i = 0; i < dag_.nodes.size(); ++i) {
      if (is_compute(i) && missing_[i] == 0) push(i);
    }
    while (!ready_.empty()) {
      Entry e = ready_.top();
      ready_.pop();
      const double start = start_of(e.node);
      if (start > e.start) {  // its device got busy since it was queued
        ready_.push({start, e.rank, e.node});
        continue;
      }
      finish(e.node, start + costs_[e.node]);
    }
    PIPER_CHECK(dag_.compute_order.size() ==
                    static_cast<size_t>(std::count_if(dag_.nodes.begin(), dag_.nodes.end(),
                                                      [](const Node& n) { return n.kind == NodeKind::kCompute; })),
                "the DAG has a cycle after the order pass");
  }

 private:
  struct Entry {
    double start;
    std::tuple<int, int32_t, int32_t> rank;  // pass, microbatch, -chunk
    size_t node;
    friend bool operator>(const Entry& a, const Entry& b) {
      return std::tie(a.start, a.rank, a.node) > std::tie(b.start, b.rank, b.node);
    }
  };

  bool is_compute(size_t i) const { return dag_.nodes[i].kind == NodeKind::kCompute; }

  void add_edge(size_t from, size_t to) {
    if (!is_compute(from) || !is_compute(to)) return;
    next_[from].push_back(to);
    ++missing_[to];
  }

  double start_of(size_t i) const {
    double start = earliest_[i];
    for (size_t q : overlaps_[dag_.nodes[i].placement.index()]) start = std::max(start, free_at_[q]);
    return start;
  }

  void push(size_t i) {
    const Node& n = dag_.nodes[i];
    const int pass = n.pass == ir::Pass::kWeightGrad ? 3 : n.pass == ir::Pass::kForward ? 2 : ir::is_backward(n.pass) ? 1 : 0;
    ready_.push({start_of(i), {pass, n.microbatch, -n.chunk.value}, i});
  }

  void finish(size_t i, double end) {
    dag_.compute_order.push_back(NodeId(static_cast<int64_t>(i)));
    free_at_[dag_.nodes[i].placement.index()] = end;
    for (size_t to : next_[i]) {
      earliest_[to] = std::max(earliest_[to], end + (hidden(i, to) ? kTravel : 0));
      if (--missing_[to] == 0) push(to);
    }
  }

  // Whether rows travel between two computes of a group.
  bool hidden(size_t from, size_t to) const {
    const Node &a = dag_.nodes[from], &b = dag_.nodes[to];
    return a.overlap >= 0 && a.overlap == b.overlap && a.tags.count(ir::kExpertTag) != b.tags.count(ir::kExpertTag);
  }
  // The least that counts: how long it takes is not known here, and any other compute that can run should.
  static constexpr double kTravel = 1;

  TrainingDag& dag_;
  std::vector<double> costs_;
  std::vector<std::vector<size_t>> next_;
  std::vector<int> missing_;
  std::vector<double> earliest_;
  std::vector<double> free_at_;  // per placement: when its devices finish what this placement gave them
  std::vector<std::vector<size_t>> overlaps_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
};

}  // namespace

void schedule_compute(TrainingDag& dag, const Strategy& strategy, Diagnostics&) { ListScheduler(dag, strategy.train.batch).run(); }

}  // namespace piper::passes
