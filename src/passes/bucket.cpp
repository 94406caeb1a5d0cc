// bucket: parameters with equal holders are flattened into buckets, in the order in which a backward completes their
// gradients; one update per bucket.
//
//   U(stage=0) <- ...  (one per parameter)   ->   bucket b0 params=12 elements=79360 on pp=0;  U b0 <- B(stage=0, mb=0), …
//
// After place, which decides who holds what. The layout of a bucket is the same on every holder, so that a reduction is
// one collective over a contiguous buffer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "ir/shares.h"
#include "passes/parts.h"
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
  std::string stream = "reduce", gather_stream = "gather";
  std::map<int, int> levels;  // by axis
  int64_t prefetch = std::numeric_limits<int64_t>::max();
  support::SourceSpan span;
};

// What the `replicate` directives of the parameter's chunks say about its bucket; where they differ, the smallest size,
// level and prefetch win.
Settings settings_of(const TrainingDag& dag, const Strategy& strategy, ParamId param) {
  Settings s;
  for (const ir::Chunk& chunk : dag.chunks) {
    if (std::find(chunk.params.begin(), chunk.params.end(), param) == chunk.params.end()) continue;
    std::map<int, int> levels;
    for (const ir::Replicate& r : strategy.replicates) {
      if (!matches(r.selector, chunk.tags, dag.split_dim)) continue;
      s.bytes = std::min(s.bytes, r.bucket_bytes);
      s.stream = r.reduce_stream;
      s.span = r.span;
      levels[r.axis] = std::max(levels[r.axis], r.zero);
      if (r.zero == 3) {
        s.prefetch = std::min(s.prefetch, r.prefetch.value_or(1));
        s.gather_stream = r.gather_stream;
      } else if (r.zero > 0 && s.prefetch == std::numeric_limits<int64_t>::max()) {
        s.gather_stream = r.gather_stream;
      }
    }
    for (const auto& [axis, level] : levels) {
      const auto [it, fresh] = s.levels.try_emplace(axis, level);
      if (!fresh) it->second = std::min(it->second, level);
    }
  }
  return s;
}

// The stages in which a parameter's bucket is divided: over the axes that every holder spans. A parameter without
// optimizer state and gradient is divided at level 3 only; buffers and running statistics never are.
std::vector<ir::ShardStage> stages_of(const TrainingDag& dag, ParamId param, bool trainable, const std::map<int, int>& levels) {
  const ir::Parameter& p = dag.model.params[param.index()];
  if (p.is_buffer || p.type.dtype != ir::DType::kF32 || dag.statistics.count(param)) return {};
  std::vector<ir::ShardStage> stages;
  const auto divided = dag.divided.find(param);
  if (divided != dag.divided.end()) {
    const int axis = divided->second.axis;
    stages.push_back({4, {axis}, dag.mesh.axes[static_cast<size_t>(axis)].size});
  }
  for (int level = 3; level >= (trainable ? 1 : 3); --level) {
    ir::ShardStage stage{level, {}, 1};
    for (int axis = 0; axis < static_cast<int>(dag.mesh.axes.size()); ++axis) {
      const auto it = levels.find(axis);
      if (it == levels.end() || it->second != level) continue;
      if (divided != dag.divided.end() && divided->second.axis == axis) continue;  // nothing is equal along it
      const auto& holders = dag.param_holders[param.index()];
      const bool spanned = std::all_of(holders.begin(), holders.end(), [&](ir::PlacementId h) {
        const std::vector<int> axes = ir::spanned_axes(dag.mesh, dag.placements[h.index()]);
        return std::find(axes.begin(), axes.end(), axis) != axes.end();
      });
      if (!spanned) continue;
      stage.axes.push_back(axis);
      stage.degree *= dag.mesh.axes[static_cast<size_t>(axis)].size;
    }
    if (!stage.axes.empty()) stages.push_back(std::move(stage));
  }
  return stages;
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

// Tags of the chunks that read a parameter.
std::set<std::string> regions_reading(const TrainingDag& dag, ParamId param) {
  std::set<std::string> regions;
  for (const ir::Chunk& chunk : dag.chunks) {
    if (std::find(chunk.params.begin(), chunk.params.end(), param) != chunk.params.end()) regions.insert(ir::to_string(chunk.tags));
  }
  return regions;
}

}  // namespace

void bucket(TrainingDag& dag, const Strategy& strategy, Diagnostics&) {
  std::set<ParamId> updated;
  for (const ir::Contribution& c : dag.contributions) updated.insert(c.param);

  // The open bucket of everything that a bucket's parameters have in common.
  using Key = std::tuple<std::vector<ir::PlacementId>, bool, bool, std::string, std::string, std::string, int64_t, std::set<std::string>>;
  std::map<Key, size_t> open;
  for (ParamId p : backward_order(dag)) {
    const ir::Parameter& param = dag.model.params[p.index()];
    const Settings settings = settings_of(dag, strategy, p);
    const bool trainable = updated.count(p) > 0;
    // Elements of 4 bytes; an integer buffer among the frozen parameters takes as many as it needs.
    const int64_t elements = (ir::num_elements(ir::at(param.type.shape, 1)) * ir::dtype_size(param.type.dtype) + 3) / 4;
    const int64_t padded = (elements + kElementAlignment - 1) / kElementAlignment * kElementAlignment;
    const bool statistics = dag.statistics.count(p) > 0;
    std::vector<ir::ShardStage> stages = stages_of(dag, p, trainable, settings.levels);
    const bool divided = dag.divided.count(p) > 0;
    const auto at_level = [&](int level) { return [level](const ir::ShardStage& s) { return s.level == level; }; };
    const bool gathers = std::any_of(stages.begin(), stages.end(), at_level(3));
    const bool in_runs = gathers || std::any_of(stages.begin(), stages.end(), at_level(2));
    // What is gathered and scattered for a run of computes must not hold what they do not use.
    const std::set<std::string> users = in_runs ? regions_reading(dag, p) : std::set<std::string>{};
    // The parts of a divided parameter are one behind another in its bucket: no other is in there.
    std::string cut = divided ? fmt::format("{} ", p.value) : "";
    for (const ir::ShardStage& s : stages) cut += fmt::format("{}:{} ", s.level, fmt::join(s.axes, ","));
    const Key key{dag.param_holders[p.index()], trainable, statistics, settings.stream,
                  stages.empty() ? "" : settings.gather_stream, cut, gathers ? settings.prefetch : 0, users};
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
      b.gather_stream = settings.gather_stream;
      b.stages = std::move(stages);
      b.prefetch = gathers ? settings.prefetch : 0;
      b.span = settings.span;
      if (divided) b.part_elements = elements;
      dag.buckets.push_back(std::move(b));
    }
    Bucket& b = dag.buckets[open[key]];
    b.params.push_back(p);
    b.offsets.push_back(b.elements);
    b.elements += padded;
  }
  for (Bucket& b : dag.buckets) {
    // Shards are equal, and each starts on a cache line.
    const int64_t parts = b.degree(b.depth(4)), unit = kElementAlignment * b.degree() / parts;
    b.elements = (b.elements + unit - 1) / unit * unit * parts;
  }
  cut_parts(dag);

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
