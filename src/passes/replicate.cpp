// replicate: the collectives over buckets.
//
//   B(stage=0, mb=0)  B(stage=0, mb=1)  U b0   ->   all_reduce b0 over pp=0 <- B(stage=0, mb=0), B(stage=0, mb=1);  U b0 <- all_reduce b0
//   zero 1:  reduce_scatter b0 once, U b0 of the shard, all_gather b0
//   zero 2:  reduce_scatter b0 after each run of backwards, added to the shard
//   zero 3:  and all_gather b0 before a run of uses (gathers.h)
//
// Replicas and the several holders of a tied or twice-placed parameter are one group: every rank adds its own
// contributions to its own gradient, and the sum over all ranks that hold the parameter counts each once. Where a bucket
// is divided, the sum over other holders and over undivided axes is taken once per step, of the shards. After
// schedule_compute, which knows what follows what on a device.
#include "passes/replicate.h"

#include <algorithm>
#include <map>

#include "ir/shares.h"
#include "passes/gathers.h"
#include "passes/pipeline.h"

namespace piper::passes {

using ir::Bucket;
using ir::BucketId;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::PlacementId;

namespace {

class Replicator {
 public:
  explicit Replicator(TrainingDag& dag) : dag_(dag) {}

  void run() {
    divide_computes();
    for (size_t p = 0; p < dag_.placements.size(); ++p) {
      const std::vector<Step> steps = steps_on(dag_, PlacementId(static_cast<int64_t>(p)));
      reduce_runs(steps, PlacementId(static_cast<int64_t>(p)));
      add_gathers(dag_, steps, PlacementId(static_cast<int64_t>(p)));
    }
    std::vector<NodeId> updates;
    for (size_t i = 0; i < dag_.nodes.size(); ++i) {
      if (dag_.nodes[i].kind == NodeKind::kUpdate) updates.push_back(NodeId(static_cast<int64_t>(i)));
    }
    for (NodeId update : updates) finish_bucket(update);
  }

 private:
  // A compute node becomes one per part where a collective has to run between its parts.
  void divide_computes() {
    std::vector<NodeId> order;
    for (NodeId id : dag_.compute_order) {
      if (needs_parts(dag_.node(id))) {
        const size_t parts = ir::parts_of(dag_.chunk(dag_.node(id).chunk), dag_.node(id).pass).size();
        NodeId before;
        for (size_t k = 0; k + 1 < parts; ++k) {
          Node part = dag_.node(id);
          part.part = static_cast<int32_t>(k);
          if (k > 0) part.inputs = {before};
          before = dag_.add_node(std::move(part));
          order.push_back(before);
        }
        // The last keeps the id: it is what others wait for.
        dag_.node(id).part = static_cast<int32_t>(parts) - 1;
        dag_.node(id).inputs = {before};
      }
      order.push_back(id);
    }
    dag_.compute_order = std::move(order);
  }

  bool needs_parts(const Node& node) const {
    if (!node.chunk.valid() || node.pass == ir::Pass::kCount) return false;
    const std::vector<ir::Part>& parts = ir::parts_of(dag_.chunk(node.chunk), node.pass);
    return parts.size() > 1 && std::any_of(parts.begin(), parts.end(), [&](const ir::Part& part) {
      return !part.reads.empty() || std::any_of(part.adds.begin(), part.adds.end(), [&](BucketId b) { return bucket(b).scatters(); });
    });
  }

  const Bucket& bucket(BucketId b) const { return dag_.buckets[b.index()]; }

  // One reduction for each run of consecutive backwards that add to a bucket whose gradients live as shards.
  void reduce_runs(const std::vector<Step>& steps, PlacementId placement) {
    struct Run {
      size_t last = 0;  // step
      NodeId reduction;
    };
    std::map<BucketId, Run> open;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const Step::Piece& piece : steps[i].pieces) {
        for (BucketId b : piece.part->adds) {
          if (!bucket(b).scatters()) continue;
          const auto it = open.find(b);
          if (it == open.end() || it->second.last + 1 < i) {
            open[b] = {i, dag_.add_node(collective(NodeKind::kReduceScatter, b, placement, true))};
            runs_[{b, placement}].push_back(open[b].reduction);
          }
          open[b].last = i;
          dag_.node(open[b].reduction).inputs.push_back(piece.node);
        }
      }
    }
  }

  Node collective(NodeKind kind, BucketId b, PlacementId placement, bool per_run) const {
    Node node;
    node.kind = kind;
    node.bucket = b;
    node.placement = placement;
    node.per_run = per_run;
    node.stream = kind == NodeKind::kAllGather ? bucket(b).gather_stream : bucket(b).stream;
    node.span = bucket(b).span;
    return node;
  }

  // Once per step: the shards of the optimizer state, the sum over everybody else, the new parameters.
  void finish_bucket(NodeId update) {
    const BucketId b = dag_.node(update).bucket;
    std::vector<NodeId> inputs;
    for (PlacementId holder : bucket(b).holders) {
      std::vector<NodeId> local = runs_[{b, holder}];
      if (!bucket(b).scatters()) {
        for (NodeId in : dag_.node(update).inputs) {
          if (dag_.node(in).placement == holder) local.push_back(in);
        }
      }
      if (bucket(b).depth(1) > bucket(b).depth(2)) {
        Node scatter = collective(NodeKind::kReduceScatter, b, holder, false);
        scatter.inputs = std::move(local);
        local = {dag_.add_node(std::move(scatter))};
      }
      inputs.insert(inputs.end(), local.begin(), local.end());
    }
    if (holder_count(dag_, bucket(b)) > bucket(b).degree()) {
      Node reduce = collective(NodeKind::kAllReduce, b, PlacementId(), false);
      reduce.holders = bucket(b).holders;
      for (const ir::ShardStage& stage : bucket(b).stages) reduce.apart.insert(reduce.apart.end(), stage.axes.begin(), stage.axes.end());
      std::sort(reduce.apart.begin(), reduce.apart.end());
      reduce.inputs = std::move(inputs);
      inputs = {dag_.add_node(std::move(reduce))};
    }
    dag_.node(update).inputs = std::move(inputs);
    if (bucket(b).depth(1) == bucket(b).depth(3)) return;
    for (PlacementId holder : bucket(b).holders) {
      Node gather = collective(NodeKind::kAllGather, b, holder, false);
      gather.inputs = {update};
      dag_.add_node(std::move(gather));
    }
  }

  TrainingDag& dag_;
  std::map<std::pair<BucketId, PlacementId>, std::vector<NodeId>> runs_;
};

}  // namespace

std::vector<Step> steps_on(const TrainingDag& dag, PlacementId placement) {
  std::vector<Step> steps;
  for (NodeId id : dag.compute_order) {
    const Node& n = dag.node(id);
    if (n.placement != placement || n.pass == ir::Pass::kCount) continue;
    if (n.part <= 0) steps.emplace_back();
    const std::vector<ir::Part>& parts = ir::parts_of(dag.chunk(n.chunk), n.pass);
    for (size_t k = 0; k < parts.size(); ++k) {
      if (n.part < 0 || static_cast<size_t>(n.part) == k) steps.back().pieces.push_back({id, &parts[k]});
    }
  }
  return steps;
}

int64_t holder_count(const TrainingDag& dag, const Bucket& bucket) {
  std::vector<int32_t> ranks;
  for (PlacementId p : bucket.holders) {
    const auto of = ir::ranks_of(dag.mesh, dag.placements[p.index()]);
    ranks.insert(ranks.end(), of.begin(), of.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return std::unique(ranks.begin(), ranks.end()) - ranks.begin();
}

void replicate(TrainingDag& dag, const Strategy&, Diagnostics&) { Replicator(dag).run(); }

}  // namespace piper::passes
