#include "ir/dag.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "support/strings.h"

namespace piper::ir {

std::string to_string(const Tags& tags) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : tags) parts.push_back(fmt::format("{}={}", name, value));
  return support::join(parts, ", ");
}

std::string_view pass_letter(Pass pass) {
  switch (pass) {
    case Pass::kCount: return "C";
    case Pass::kForward: return "F";
    case Pass::kBackward: return "B";
    case Pass::kInputGrad: return "I";
    case Pass::kWeightGrad: return "W";
    case Pass::kUpdate: return "U";
    case Pass::kNone: return "-";
  }
  return "-";
}

std::vector<int64_t> coordinates_of(const Mesh& mesh, int64_t rank) {
  std::vector<int64_t> coordinates(mesh.axes.size());
  for (size_t i = mesh.axes.size(); i-- > 0;) {
    coordinates[i] = rank % mesh.axes[i].size;
    rank /= mesh.axes[i].size;
  }
  return coordinates;
}

bool contains(const Mesh& mesh, const Placement& placement, int32_t rank) {
  const std::vector<int64_t> at = coordinates_of(mesh, rank);
  return std::all_of(placement.fixed.begin(), placement.fixed.end(),
                     [&](const auto& f) { return at[static_cast<size_t>(f.first)] == f.second; });
}

std::vector<int32_t> ranks_of(const Mesh& mesh, const Placement& placement) {
  std::vector<int32_t> ranks;
  for (int32_t r = 0; r < mesh.world_size(); ++r) {
    if (contains(mesh, placement, r)) ranks.push_back(r);
  }
  return ranks;
}

bool overlap(const Placement& a, const Placement& b) {
  for (const auto& fa : a.fixed) {
    for (const auto& fb : b.fixed) {
      if (fa.first == fb.first && fa.second != fb.second) return false;
    }
  }
  return true;
}

Halves halves_of(const Model& model, const Chunk& chunk) {
  Halves halves;
  const std::set<OpId> of_weights(chunk.weight_backward.begin(), chunk.weight_backward.end());
  std::set<ValueId> made;
  for (OpId id : chunk.backward) {
    if (of_weights.count(id)) continue;
    halves.inputs.push_back(id);
    made.insert(model.op(id).outputs.begin(), model.op(id).outputs.end());
  }
  for (const auto& g : chunk.param_gradients) (made.count(g.second) ? halves.input_gradients : halves.weight_gradients).push_back(g);
  return halves;
}

size_t Bucket::depth(int level) const {
  return static_cast<size_t>(std::count_if(stages.begin(), stages.end(), [level](const ShardStage& s) { return s.level >= level; }));
}

int64_t Bucket::degree(size_t depth) const {
  int64_t degree = 1;
  for (size_t i = 0; i < depth; ++i) degree *= stages[i].degree;
  return degree;
}

BucketPart part_of(const Mesh& mesh, const Bucket& bucket, size_t depth, int64_t rank) {
  const std::vector<int64_t> at = coordinates_of(mesh, rank);
  int64_t index = 0;
  for (size_t i = 0; i < depth; ++i) {
    for (int a : bucket.stages[i].axes) index = index * mesh.axes[static_cast<size_t>(a)].size + at[static_cast<size_t>(a)];
  }
  const int64_t count = bucket.elements / bucket.degree(depth);
  if (bucket.part_elements == 0) return {index * count, count};
  // The parts of a divided parameter lie one behind another, without the padding that each of them has.
  const int64_t within = bucket.degree(depth) / bucket.degree(bucket.depth(4));
  const int64_t begin = index % within * count, end = std::min(begin + count, bucket.part_elements);
  return {index / within * bucket.part_elements + begin, std::max<int64_t>(0, end - begin)};
}

const std::vector<Part>& parts_of(const Chunk& chunk, Pass pass) {
  switch (pass) {
    case Pass::kBackward: return chunk.backward_parts;
    case Pass::kInputGrad: return chunk.input_parts;
    case Pass::kWeightGrad: return chunk.weight_parts;
    default: return chunk.forward_parts;
  }
}

std::string describe(const TrainingDag& dag, NodeId id) {
  const Node& node = dag.node(id);
  switch (node.kind) {
    case NodeKind::kCompute:
    case NodeKind::kUpdate:
      return fmt::format("{}{}({})", pass_letter(node.pass), node.part < 0 ? "" : fmt::format(".{}", node.part), to_string(node.tags));
    case NodeKind::kReduceScatter: return fmt::format("reduce_scatter {}", dag.buckets[node.bucket.index()].name);
    case NodeKind::kAllGather: return fmt::format("all_gather {}", dag.buckets[node.bucket.index()].name);
    case NodeKind::kSend:
    case NodeKind::kRecv:
      return fmt::format("{} {} mb={}", node.kind == NodeKind::kSend ? "send" : "recv", dag.model.value(node.value).name,
                         node.microbatch);
    case NodeKind::kAllReduce:
      if (node.bucket.valid()) return fmt::format("all_reduce {}", dag.buckets[node.bucket.index()].name);
      return node.loss_term >= 0 ? fmt::format("all_reduce count {}", node.loss_term) : "all_reduce stats";
    case NodeKind::kNorm:
      return "norm";
    case NodeKind::kAllToAll:
      return fmt::format("all_to_all {} mb={}", dag.model.value(dag.exchanges[static_cast<size_t>(node.exchange)].from).name, node.microbatch);
    case NodeKind::kWaitHost:
      return fmt::format("wait_host {} mb={}", dag.model.value(dag.exchanges[static_cast<size_t>(node.exchange)].to).name, node.microbatch);
  }
  return "?";
}

namespace {

std::string names(const Model& model, const std::vector<ValueId>& values) {
  std::vector<std::string> parts;
  for (ValueId v : values) parts.push_back(model.value(v).name);
  return support::join(parts, ", ");
}

void print_chunks(const TrainingDag& dag, std::string& out) {
  for (size_t i = 0; i < dag.chunks.size(); ++i) {
    const Chunk& c = dag.chunks[i];
    out += fmt::format("chunk {} {{{}}} forward={} backward={}", i, to_string(c.tags), c.forward.size(), c.backward.size());
    if (!c.data.empty()) out += fmt::format(" data=({})", names(dag.model, c.data));
    if (!c.inputs.empty()) out += fmt::format(" in=({})", names(dag.model, c.inputs));
    if (!c.outputs.empty()) out += fmt::format(" out=({})", names(dag.model, c.outputs));
    if (!c.params.empty()) out += fmt::format(" params={}", c.params.size());
    if (!c.param_gradients.empty()) out += fmt::format(" grads={}", c.param_gradients.size());
    if (!c.gradients_out.empty()) {
      std::vector<ValueId> of;
      for (const auto& g : c.gradients_out) of.push_back(g.first);
      out += fmt::format(" grad_of=({})", names(dag.model, of));
    }
    if (c.recomputed_segments > 0) out += fmt::format(" recomputed={}", c.recomputed_segments);
    if (c.samples > 0) out += fmt::format(" rows_of={}", c.samples);
    if (!c.kept.empty()) out += fmt::format(" kept=({})", names(dag.model, c.kept));
    out += "\n";
  }
}

std::string axis_names(const Mesh& mesh, const std::vector<int>& axes) {
  std::vector<std::string> names;
  for (int a : axes) names.push_back(mesh.axes[static_cast<size_t>(a)].name);
  return support::join(names, ", ");
}

std::string sharding(const Mesh& mesh, const Bucket& b) {
  std::string out;
  for (const ShardStage& s : b.stages) {
    out += s.level > 3 ? " divided" : fmt::format(" zero {}", s.level);
    out += fmt::format(" over {}", axis_names(mesh, s.axes));
  }
  return out;
}

void print_divisions(const TrainingDag& dag, std::string& out) {
  const auto axis = [&](int a) { return dag.mesh.axes[static_cast<size_t>(a)].name; };
  const auto value = [&](ValueId v) { return fmt::format("{} {}", dag.model.value(v).name, to_string(dag.model.value(v).type)); };
  for (const auto& [p, division] : dag.divided) {
    const Parameter& param = dag.model.params[p.index()];
    out += fmt::format("divided {} {} of {} over {}\n", param.name, to_string(param.type), to_string(division.whole), axis(division.axis));
  }
  for (const Exchange& e : dag.exchanges) {
    out += fmt::format("exchange {} -> {} over {} stream={}", value(e.from), value(e.to), axis(e.axis), e.stream);
    if (e.sent.valid()) out += fmt::format(" sent={} received={}", dag.model.value(e.sent).name, dag.model.value(e.received).name);
    if (e.limit > 0) out += fmt::format(" limit={}", e.limit);
    out += "\n";
  }
}

void print_node(const TrainingDag& dag, size_t i, std::string& out) {
  const Node& n = dag.nodes[i];
  out += fmt::format("%{} = {}", i, describe(dag, NodeId(static_cast<int64_t>(i))));
  if (n.placement.valid() && n.placement.index() < dag.placements.size()) {
    out += fmt::format(" on {}", dag.placements[n.placement.index()].name);
  }
  if (n.peer.valid()) out += fmt::format(" {} {}", n.kind == NodeKind::kSend ? "to" : "from", dag.placements[n.peer.index()].name);
  if (n.kind == NodeKind::kAllReduce) {
    std::vector<std::string> over;
    for (PlacementId p : n.holders) over.push_back(dag.placements[p.index()].name);
    out += fmt::format(" over {}", over.empty() ? "all" : support::join(over, " + "));
    if (!n.apart.empty()) out += fmt::format(" for each {}", axis_names(dag.mesh, n.apart));
  }
  if (!n.stream.empty()) out += fmt::format(" stream={}", n.stream);
  if (!n.inputs.empty()) {
    std::vector<std::string> from;
    for (NodeId in : n.inputs) from.push_back(fmt::format("%{}", in.value));
    out += fmt::format(" <- {}", support::join(from, ", "));
  }
  out += "\n";
}

}  // namespace

std::string to_string(const TrainingDag& dag) {
  std::string out;
  print_chunks(dag, out);
  for (size_t i = 0; i < dag.placements.size(); ++i) out += fmt::format("placement {} {}\n", i, dag.placements[i].name);
  for (const Bucket& b : dag.buckets) {
    std::vector<std::string> holders;
    for (PlacementId p : b.holders) holders.push_back(dag.placements[p.index()].name);
    out += fmt::format("bucket {} params={} elements={} on {}{}{}\n", b.name, b.params.size(), b.elements,
                       support::join(holders, " + "), sharding(dag.mesh, b),
                       b.statistics ? " statistics" : b.trainable ? "" : " frozen");
  }
  print_divisions(dag, out);
  for (size_t i = 0; i < dag.nodes.size(); ++i) print_node(dag, i, out);
  for (const OrderEdge& e : dag.orders) {
    out += fmt::format("order {} < {}\n", describe(dag, e.before), describe(dag, e.after));
  }
  auto list = [&](const char* what, const std::vector<NodeId>& order) {
    if (order.empty()) return;
    out += what;
    for (NodeId n : order) out += fmt::format(" {}", n.value);
    out += "\n";
  };
  list("compute_order", dag.compute_order);
  list("global_order", dag.global_order);
  return out;
}

}  // namespace piper::ir
