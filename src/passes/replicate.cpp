// replicate: one all-reduce per bucket over everybody who holds it, after the last contribution of the step.
//
//   B(stage=0, mb=0)  B(stage=0, mb=1)  U b0   ->   all_reduce b0 over pp=0 <- B(stage=0, mb=0), B(stage=0, mb=1);  U b0 <- all_reduce b0
//
// Replicas and the several holders of a tied or twice-placed parameter are one group: every rank adds its own
// contributions to its own gradient, and the sum over all ranks that hold the parameter counts each once.
#include <algorithm>
#include <numeric>

#include "ir/shares.h"
#include "passes/pipeline.h"

namespace piper::passes {

using ir::Node;
using ir::NodeId;
using ir::NodeKind;

namespace {

int64_t devices_of(const TrainingDag& dag, const std::vector<ir::PlacementId>& holders) {
  if (holders.size() > 1) return 2;  // distinct placements: at least two devices
  return ir::data_degree(dag.mesh, dag.placements[holders.front().index()]);
}

}  // namespace

void replicate(TrainingDag& dag, const Strategy&, Diagnostics&) {
  std::vector<NodeId> updates;
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    if (dag.nodes[i].kind == NodeKind::kUpdate) updates.push_back(NodeId(static_cast<int64_t>(i)));
  }
  for (NodeId update : updates) {
    const ir::Bucket& bucket = dag.buckets[dag.node(update).bucket.index()];
    if (devices_of(dag, bucket.holders) == 1) continue;
    Node reduce;
    reduce.kind = NodeKind::kAllReduce;
    reduce.bucket = dag.node(update).bucket;
    reduce.holders = bucket.holders;
    reduce.stream = bucket.stream;
    reduce.inputs = dag.node(update).inputs;
    reduce.span = bucket.span;
    const NodeId id = dag.add_node(std::move(reduce));
    dag.node(update).inputs = {id};
  }
}

}  // namespace piper::passes
