// bucket: parameters with equal holders are flattened into buckets, in the order in which a backward completes their
// gradients; one update per bucket.
//
//   U(stage=0) <- ...  (one per parameter)   ->   bucket b0 params=12 elements=79360 on pp=0;  U b0 <- B(stage=0, mb=0), …
//
// After place, which decides who holds what. The layout of a bucket is the same on every holder, so that a reduction is
// one collective over a contiguous buffer.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "passes/pipeline.h"
#include "passes/select.h"

namespace piper::passes {

using ir::Bucket;
using ir::BucketId;
using ir::Node;
using ir::NodeKind;
using ir::ParamId;

namespace {

// 64 bytes of f32: every parameter starts on a cache line.
constexpr int64_t kElementAlignment = 16;

struct Settings {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  std::string stream = "reduce";
  support::SourceSpan span;
};

// What the `replicate` directives of the parameter's chunks say about its bucket; the smallest size wins.
Settings settings_of(const TrainingDag& dag, const Strategy& strategy, ParamId param) {
  Settings s;
  for (const ir::Chunk& chunk : dag.chunks) {
    if (std::find(chunk.params.begin(), chunk.params.end(), param) == chunk.params.end()) continue;
    for (const ir::Replicate& r : strategy.replicates) {
      if (!matches(r.selector, chunk.tags, dag.split_dim)) continue;
      s.bytes = std::min(s.bytes, r.bucket_bytes);
      s.stream = r.reduce_stream;
      s.span = r.span;
    }
  }
  return s;
}

// Parameters by the time their last gradient contribution of a backward is there: later chunks first, and within a chunk
// in the order of its backward ops.
std::vector<ParamId> backward_order(const TrainingDag& dag) {
  std::vector<ParamId> order;
  std::vector<char> seen(dag.model.params.size(), false);
  auto take = [&](ParamId p) {
    if (!seen[p.index()]) order.push_back(p);
    seen[p.index()] = true;
  };
  for (size_t c = dag.chunks.size(); c-- > 0;) {
    std::map<ir::ValueId, size_t> made;
    for (size_t i = 0; i < dag.chunks[c].backward.size(); ++i) {
      for (ir::ValueId v : dag.model.op(dag.chunks[c].backward[i]).outputs) made[v] = i;
    }
    std::vector<std::pair<size_t, ParamId>> grads;
    for (const auto& [p, g] : dag.chunks[c].param_gradients) grads.emplace_back(made.count(g) ? made[g] : 0, p);
    std::stable_sort(grads.begin(), grads.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [at, p] : grads) take(p);
  }
  for (const ir::Chunk& chunk : dag.chunks) {
    for (ParamId p : chunk.params) take(p);  // frozen ones and buffers
  }
  return order;
}

}  // namespace

void bucket(TrainingDag& dag, const Strategy& strategy, Diagnostics&) {
  std::set<ParamId> updated;
  for (const ir::Contribution& c : dag.contributions) updated.insert(c.param);

  // The open bucket of each (holders, trainable, statistics, stream).
  std::map<std::tuple<std::vector<ir::PlacementId>, bool, bool, std::string>, size_t> open;
  for (ParamId p : backward_order(dag)) {
    const ir::Parameter& param = dag.model.params[p.index()];
    const Settings settings = settings_of(dag, strategy, p);
    const bool trainable = updated.count(p) > 0;
    // Elements of 4 bytes; an integer buffer among the frozen parameters takes as many as it needs.
    const int64_t elements = (ir::num_elements(ir::at(param.type.shape, 1)) * ir::dtype_size(param.type.dtype) + 3) / 4;
    const int64_t padded = (elements + kElementAlignment - 1) / kElementAlignment * kElementAlignment;
    const bool statistics = dag.statistics.count(p) > 0;
    const auto key = std::make_tuple(dag.param_holders[p.index()], trainable, statistics, settings.stream);
    auto it = open.find(key);
    const bool full = it != open.end() && (dag.buckets[it->second].elements + padded) * 4 > settings.bytes;
    if (it == open.end() || full) {
      open[key] = dag.buckets.size();
      Bucket b;
      b.name = fmt::format("b{}", dag.buckets.size());
      b.holders = dag.param_holders[p.index()];
      b.trainable = trainable;
      b.statistics = statistics;
      b.stream = settings.stream;
      b.span = settings.span;
      dag.buckets.push_back(std::move(b));
    }
    Bucket& b = dag.buckets[open[key]];
    b.params.push_back(p);
    b.offsets.push_back(b.elements);
    b.elements += padded;
  }

  // One update per bucket in the place of one per parameter.
  std::vector<Node> kept;
  for (Node& node : dag.nodes) {
    if (node.kind != NodeKind::kUpdate) kept.push_back(std::move(node));
  }
  dag.nodes = std::move(kept);  // updates were last: other ids stay
  for (size_t b = 0; b < dag.buckets.size(); ++b) {
    if (!dag.buckets[b].trainable) continue;
    Node update;
    update.kind = NodeKind::kUpdate;
    update.pass = ir::Pass::kUpdate;
    update.bucket = BucketId(static_cast<int64_t>(b));
    update.holders = dag.buckets[b].holders;
    std::set<ir::ChunkId> chunks;
    for (const ir::Contribution& c : dag.contributions) {
      const auto& params = dag.buckets[b].params;
      if (std::find(params.begin(), params.end(), c.param) != params.end()) chunks.insert(c.chunk);
    }
    for (size_t i = 0; i < dag.nodes.size(); ++i) {
      const Node& n = dag.nodes[i];
      if (ir::is_backward(n.pass) && chunks.count(n.chunk)) update.inputs.push_back(ir::NodeId(static_cast<int64_t>(i)));
    }
    if (!chunks.empty()) update.tags = dag.chunk(*chunks.begin()).tags;
    dag.add_node(std::move(update));
  }
}

}  // namespace piper::passes
