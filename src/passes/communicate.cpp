// communicate: a send and a receive wherever a value crosses between placements, exchanges within one, the counts of valid
// targets, the norm.
//
//   F(stage=0, mb=0) on pp=0;  F(stage=1, mb=0) on pp=1 <- F(stage=0, mb=0)
//   ->  send h mb=0 on pp=0 to pp=1 <- F(stage=0, mb=0);  recv h mb=0 on pp=1 from pp=0;  F(stage=1, mb=0) <- recv
//
// A value goes once to each placement that reads it, straight from where it is made, however many stages lie between. A
// gradient goes back once per consumer chunk and is summed by the producer in chunk order.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/shares.h"
#include "passes/pipeline.h"

namespace piper::passes {

using ir::ChunkId;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::Pass;
using ir::PlacementId;
using ir::ValueId;
using support::Code;

namespace {

class Communicator {
 public:
  Communicator(TrainingDag& dag, Diagnostics& diagnostics) : dag_(dag), diagnostics_(diagnostics) {
    const size_t n = static_cast<size_t>(dag.microbatches);
    forward_.assign(dag.chunks.size(), std::vector<Ends>(n));
    backward_ = forward_;
    for (size_t i = 0; i < dag.nodes.size(); ++i) {
      const Node& node = dag.nodes[i];
      if (node.kind != NodeKind::kCompute) continue;
      if (node.pass == Pass::kForward) note(forward_, node, NodeId(static_cast<int64_t>(i)));
      // Gradients of inputs travel; those of weights stay.
      if (node.pass == Pass::kBackward || node.pass == Pass::kInputGrad) note(backward_, node, NodeId(static_cast<int64_t>(i)));
    }
    for (size_t c = 0; c < dag.chunks.size(); ++c) {
      for (ValueId v : dag.chunks[c].outputs) producer_[v] = ChunkId(static_cast<int64_t>(c));
    }
    for (size_t e = 0; e < dag.exchanges.size(); ++e) exchange_[dag.exchanges[e].to] = static_cast<int32_t>(e);
  }

  void run() {
    for (int32_t mb = 0; mb < dag_.microbatches; ++mb) {
      for (size_t c = 0; c < dag_.chunks.size(); ++c) send_activations(c, mb);
      for (size_t c = dag_.chunks.size(); c-- > 0;) send_gradients(c, mb);
    }
    if (diagnostics_.has_errors()) return;
    reduce_counts();
    add_norm();
  }

 private:
  // The nodes of a pass of a chunk that begin and end it: two when it was divided into parts.
  struct Ends {
    NodeId first, last;
  };
  using Table = std::vector<std::vector<Ends>>;

  void note(Table& table, const Node& node, NodeId id) {
    Ends& ends = table[node.chunk.index()][static_cast<size_t>(node.microbatch)];
    if (node.part <= 0) ends.first = id;
    const auto parts = static_cast<int32_t>(ir::parts_of(dag_.chunk(node.chunk), node.pass).size());
    if (node.part < 0 || node.part == parts - 1) ends.last = id;
  }

  void send_activations(size_t c, int32_t mb) {
    const NodeId consumer = forward_[c][static_cast<size_t>(mb)].first;
    for (ValueId v : dag_.chunks[c].inputs) {
      const auto exchange = exchange_.find(v);
      const ChunkId from = producer_.at(exchange == exchange_.end() ? v : dag_.exchanges[static_cast<size_t>(exchange->second)].from);
      connect(v, from, forward_[from.index()][static_cast<size_t>(mb)].last, consumer, mb, false);
    }
  }

  void send_gradients(size_t c, int32_t mb) {
    const NodeId consumer = backward_[c][static_cast<size_t>(mb)].first;
    for (const ir::GradientIn& g : dag_.chunks[c].gradients_in) {
      connect(g.gradient, g.consumer, backward_[g.consumer.index()][static_cast<size_t>(mb)].last, consumer, mb, true);
    }
  }

  // Puts a send and a receive between producer and consumer when they are on different placements.
  void connect(ValueId v, ChunkId channel, NodeId producer, NodeId consumer, int32_t mb, bool gradient) {
    const PlacementId from = dag_.node(producer).placement, to = dag_.node(consumer).placement;
    if (const auto exchange = exchange_.find(v); exchange != exchange_.end()) {
      return replace_input(consumer, producer, exchanged(exchange->second, producer, mb));
    }
    if (from == to) return;
    const auto [it, fresh] = receives_.try_emplace({v, mb, to});
    if (fresh) {
      check_aligned(v, from, to, consumer);
      it->second = add_pair(v, channel, producer, to, mb, gradient);
    }
    replace_input(consumer, producer, it->second);
  }

  NodeId add_pair(ValueId v, ChunkId channel, NodeId producer, PlacementId to, int32_t mb, bool gradient) {
    Node send;
    send.kind = NodeKind::kSend;
    send.value = v;
    send.channel = channel;
    send.microbatch = mb;
    send.placement = dag_.node(producer).placement;
    send.peer = to;
    send.gradient = gradient;
    send.stream = dag_.node(producer).stream.empty() ? "p2p" : dag_.node(producer).stream;
    send.inputs = {producer};
    send.span = dag_.node(producer).span;
    Node recv = send;
    recv.kind = NodeKind::kRecv;
    std::swap(recv.placement, recv.peer);
    recv.inputs = {dag_.add_node(std::move(send))};
    return dag_.add_node(std::move(recv));
  }

  // The all-to-all of an exchange for a microbatch, whose rows have to be counted before; of counts the wait for them.
  NodeId exchanged(int32_t index, NodeId producer, int32_t mb) {
    const auto [it, fresh] = exchanged_.try_emplace({index, mb});
    if (!fresh) return it->second;
    const ir::Exchange& e = dag_.exchanges[static_cast<size_t>(index)];
    Node node;
    node.kind = NodeKind::kAllToAll;
    node.exchange = index;
    node.microbatch = mb;
    node.placement = dag_.node(producer).placement;
    node.stream = e.stream;
    node.span = e.span;
    node.inputs = {producer};
    if (e.sent.valid()) {
      const auto counts = exchange_.find(e.received);
      const int32_t of_counts = counts != exchange_.end() ? counts->second : exchange_.at(e.sent);
      const ChunkId counted = producer_.at(dag_.exchanges[static_cast<size_t>(of_counts)].from);
      node.inputs.push_back(exchanged(of_counts, forward_[counted.index()][static_cast<size_t>(mb)].last, mb));
      return exchanged_[{index, mb}] = dag_.add_node(std::move(node));
    }
    Node wait = node;
    wait.kind = NodeKind::kWaitHost;
    wait.inputs = {dag_.add_node(std::move(node))};
    return exchanged_[{index, mb}] = dag_.add_node(std::move(wait));
  }

  // The consumer reads the receive instead.
  void replace_input(NodeId consumer, NodeId producer, NodeId recv) {
    auto& inputs = dag_.node(consumer).inputs;
    inputs.erase(std::remove(inputs.begin(), inputs.end(), producer), inputs.end());
    if (std::find(inputs.begin(), inputs.end(), recv) == inputs.end()) inputs.push_back(recv);
  }

  // Each receiver gets the samples of its share from those who have them. What cannot be cut by samples needs equally
  // many replicas on both sides.
  void check_aligned(ValueId v, PlacementId from, PlacementId to, NodeId consumer) {
    if (misaligned_) return;  // the other values would say the same
    const ir::Placement& a = dag_.placements[from.index()];
    const ir::Placement& b = dag_.placements[to.index()];
    const ir::Value& value = dag_.model.value(v);
    const int64_t n = ir::data_degree(dag_.mesh, a), m = ir::data_degree(dag_.mesh, b);
    const auto report = [&](const std::string& what, const std::string& help) {
      misaligned_ = true;
      diagnostics_
          .report(Code::E0515, dag_.node(consumer).span,
                  fmt::format("`{}` crosses from {} ({} data-parallel) to {} ({} data-parallel), {}", value.name, a.name, n, b.name, m, what))
          .help(help);
    };
    if (ir::overlap(a, b)) return report("which share devices", "place both on disjoint sets of devices, or on the same");
    if (n == m) return;
    if (ir::num_elements(value.type.shape).is_static()) return;  // goes as a whole
    const ir::Shape& shape = value.type.shape;
    bool by_samples = !shape.empty() && shape[0].constant == 0;
    for (size_t d = 1; d < shape.size(); ++d) by_samples = by_samples && shape[d].is_static();
    if (!by_samples) report("and its samples do not lie one behind the other", "place what makes it and what reads it on equally many data-parallel replicas");
  }

  // N_t of the global batch, before the first backward: summed over everybody who holds targets of the term.
  void reduce_counts() {
    for (size_t t = 0; t < dag_.losses.size(); ++t) {
      std::vector<NodeId> counts;
      std::vector<PlacementId> holders;
      for (size_t i = 0; i < dag_.nodes.size(); ++i) {
        const Node& n = dag_.nodes[i];
        if (n.pass != Pass::kCount || n.loss_term != static_cast<int32_t>(t)) continue;
        counts.push_back(NodeId(static_cast<int64_t>(i)));
        if (std::find(holders.begin(), holders.end(), n.placement) == holders.end()) holders.push_back(n.placement);
      }
      std::sort(holders.begin(), holders.end());
      const bool single = holders.size() == 1 && ir::data_degree(dag_.mesh, dag_.placements[holders.front().index()]) == 1;
      if (single) continue;
      Node reduce;
      reduce.kind = NodeKind::kAllReduce;
      reduce.loss_term = static_cast<int32_t>(t);
      reduce.holders = holders;
      reduce.stream = "reduce";
      reduce.inputs = counts;
      const NodeId id = dag_.add_node(std::move(reduce));
      for (Node& n : dag_.nodes) {
        if (!ir::is_backward(n.pass)) continue;
        const bool reads = std::find(n.inputs.begin(), n.inputs.end(), counts.front()) != n.inputs.end();
        if (!reads) continue;
        n.inputs.erase(std::remove_if(n.inputs.begin(), n.inputs.end(),
                                      [&](NodeId in) { return std::find(counts.begin(), counts.end(), in) != counts.end(); }),
                       n.inputs.end());
        n.inputs.push_back(id);
      }
    }
  }

  // Squares of the reduced gradients, then one all-reduce of the statistics over all devices; updates wait for it.
  void add_norm() {
    Node norm;
    norm.kind = NodeKind::kNorm;
    std::vector<NodeId> updates;
    for (size_t i = 0; i < dag_.nodes.size(); ++i) {
      if (dag_.nodes[i].kind != NodeKind::kUpdate) continue;
      updates.push_back(NodeId(static_cast<int64_t>(i)));
      if (dag_.buckets[dag_.nodes[i].bucket.index()].statistics) continue;  // no gradients
      for (NodeId in : dag_.nodes[i].inputs) {
        if (std::find(norm.inputs.begin(), norm.inputs.end(), in) == norm.inputs.end()) norm.inputs.push_back(in);
      }
    }
    NodeId last = dag_.add_node(std::move(norm));
    if (dag_.mesh.world_size() > 1) {
      Node reduce;
      reduce.kind = NodeKind::kAllReduce;
      reduce.stream = "reduce";
      reduce.inputs = {last};
      last = dag_.add_node(std::move(reduce));
    }
    for (NodeId u : updates) dag_.node(u).inputs.push_back(last);
  }

  TrainingDag& dag_;
  Diagnostics& diagnostics_;
  Table forward_, backward_;
  std::map<ValueId, ChunkId> producer_;
  std::map<ValueId, int32_t> exchange_;  // that a value comes from
  std::map<std::pair<int32_t, int32_t>, NodeId> exchanged_;  // by exchange and microbatch
  std::map<std::tuple<ValueId, int32_t, PlacementId>, NodeId> receives_;
  bool misaligned_ = false;
};

}  // namespace

void communicate(TrainingDag& dag, const Strategy&, Diagnostics& diagnostics) { Communicator(dag, diagnostics).run(); }

}  // namespace piper::passes
