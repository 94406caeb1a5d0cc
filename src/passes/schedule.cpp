// schedule: one global order of all nodes; every stream of every rank will be a projection of it.
//
//   F(stage=0, mb=0)  F(stage=1, mb=0)  send  recv   ->   F(stage=0, mb=0), send, recv, F(stage=1, mb=0)
//
// The compute order is replayed in virtual time; a send and its receive are appended together when the value is there, a
// reduction when its last contribution is. Streams that are projections of one order, with waits that point backwards in
// it, cannot deadlock, even when sends block until they are received (reference: the total-order argument of
// torch.distributed.pipelining's lowering).
#include <algorithm>

#include "ir/shares.h"
#include "passes/costs.h"
#include "passes/pipeline.h"

namespace piper::passes {

using ir::Node;
using ir::NodeId;
using ir::NodeKind;

namespace {

struct Event {
  double time;
  int kind;  // at equal times communication of what just ended goes before compute that starts
  size_t sequence;
  NodeId node;
  friend bool operator<(const Event& a, const Event& b) {
    return std::tie(a.time, a.kind, a.sequence) < std::tie(b.time, b.kind, b.sequence);
  }
};

bool is_transfer(NodeKind kind) {
  return kind == NodeKind::kSend || kind == NodeKind::kRecv || kind == NodeKind::kAllToAll || kind == NodeKind::kWaitHost;
}

// When each compute node ends, replaying the compute order with free communication.
std::vector<double> end_times(const TrainingDag& dag, const std::vector<double>& costs, std::vector<double>& starts) {
  std::vector<double> ends(dag.nodes.size(), 0), free_at(dag.placements.size(), 0);
  starts.assign(dag.nodes.size(), 0);
  for (NodeId id : dag.compute_order) {
    const Node& n = dag.node(id);
    double start = 0;
    for (size_t q = 0; q < dag.placements.size(); ++q) {
      if (ir::overlap(dag.placements[n.placement.index()], dag.placements[q])) start = std::max(start, free_at[q]);
    }
    for (NodeId in : n.inputs) {
      // A receive ends with the compute before its send, an exchange with the one before it.
      NodeId source = in;
      while (is_transfer(dag.node(source).kind)) source = dag.node(source).inputs.front();
      if (dag.node(source).kind == NodeKind::kCompute) start = std::max(start, ends[source.index()]);
    }
    starts[id.index()] = start;
    ends[id.index()] = free_at[n.placement.index()] = start + costs[id.index()];
  }
  return ends;
}

// A gather of new parameters.
bool reads_update(const TrainingDag& dag, const Node& n) {
  return n.kind == NodeKind::kAllGather && !n.inputs.empty() && dag.node(n.inputs.front()).kind == NodeKind::kUpdate;
}

}  // namespace

void schedule(TrainingDag& dag, const Strategy& strategy, Diagnostics&) {
  std::vector<double> starts;
  std::vector<double> ends = end_times(dag, node_costs(dag, strategy.train.batch), starts);
  std::vector<Event> events;
  std::vector<NodeId> tail;  // norm, its reduction, updates, gathers of what they made: after everything
  std::vector<NodeId> counts;
  size_t sequence = 0;
  for (NodeId id : dag.compute_order) {
    if (dag.node(id).pass == ir::Pass::kCount) {
      counts.push_back(id);
    } else {
      events.push_back({starts[id.index()], 1, sequence++, id});
    }
  }
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    const Node& n = dag.nodes[i];
    const NodeId id(static_cast<int64_t>(i));
    if (n.kind == NodeKind::kAllReduce && n.loss_term >= 0) counts.push_back(id);
    if (is_transfer(n.kind)) {
      // Its value is there when the first compute before it has ended; what it waits for comes earlier in the list.
      ends[id.index()] = ends[n.inputs.front().index()];
      events.push_back({ends[id.index()], 0, sequence++, id});
    }
    const bool of_bucket = n.bucket.valid() && n.kind != NodeKind::kUpdate;
    if (of_bucket && !reads_update(dag, n)) {
      // Inputs that are reductions themselves come earlier in the list of nodes.
      for (NodeId in : n.inputs) ends[id.index()] = std::max(ends[id.index()], ends[in.index()]);
      events.push_back({ends[id.index()], 0, sequence++, id});
    }
  }
  std::sort(events.begin(), events.end());
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    const Node& n = dag.nodes[i];
    const bool stats = n.kind == NodeKind::kAllReduce && !n.bucket.valid() && n.loss_term < 0;
    if (n.kind == NodeKind::kNorm || stats) tail.push_back(NodeId(static_cast<int64_t>(i)));
  }
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    if (dag.nodes[i].kind == NodeKind::kUpdate) tail.push_back(NodeId(static_cast<int64_t>(i)));
  }
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    if (reads_update(dag, dag.nodes[i])) tail.push_back(NodeId(static_cast<int64_t>(i)));
  }
  dag.global_order = std::move(counts);
  for (const Event& e : events) dag.global_order.push_back(e.node);
  dag.global_order.insert(dag.global_order.end(), tail.begin(), tail.end());
}

Bubble predicted_bubble(const TrainingDag& dag, int64_t batch) {
  const std::vector<double> costs = node_costs(dag, batch);
  std::vector<double> starts;
  const std::vector<double> ends = end_times(dag, costs, starts);
  // By placement: the devices of one have equal work. What runs on a part of them is counted for all.
  struct Stream {
    double first = -1, last = 0, busy = 0;
  };
  std::vector<Stream> streams(dag.placements.size());
  double step = 0;
  for (NodeId id : dag.compute_order) {
    const Node& n = dag.node(id);
    if (n.pass == ir::Pass::kCount) continue;
    step = std::max(step, ends[id.index()]);
    for (size_t q = 0; q < streams.size(); ++q) {
      if (!ir::overlap(dag.placements[n.placement.index()], dag.placements[q])) continue;
      Stream& stream = streams[q];
      if (stream.first < 0) stream.first = starts[id.index()];
      stream.last = std::max(stream.last, ends[id.index()]);
      stream.busy += costs[id.index()];
    }
  }
  double devices = 0, busy = 0, inside = 0;
  for (size_t q = 0; q < streams.size(); ++q) {
    if (streams[q].first < 0) continue;
    const double ranks = static_cast<double>(ir::data_degree(dag.mesh, dag.placements[q]));
    devices += ranks;
    busy += ranks * streams[q].busy;
    inside += ranks * (streams[q].last - streams[q].first);
  }
  if (devices == 0 || step == 0) return {};
  return {1 - busy / (devices * step), 1 - busy / inside};
}

}  // namespace piper::passes
