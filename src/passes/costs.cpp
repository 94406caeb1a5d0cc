#include "passes/costs.h"

#include "ir/shares.h"
#include "ops/op.h"

namespace piper::passes {

std::vector<double> node_costs(const ir::TrainingDag& dag, int64_t batch) {
  auto flops = [&](const std::vector<ir::OpId>& ops) {
    double sum = 0;
    for (ir::OpId op : ops) sum += ops::flops_of(dag.model, dag.model.op(op), 1);
    return sum;
  };
  std::vector<double> forward, backward, weights;
  for (const ir::Chunk& chunk : dag.chunks) {
    forward.push_back(flops(chunk.forward));
    backward.push_back(flops(chunk.backward));
    weights.push_back(flops(chunk.weight_backward));
  }
  const auto cuts = ir::cut_microbatches(batch, dag.microbatches);
  std::vector<double> costs(dag.nodes.size(), 0);
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    const ir::Node& n = dag.nodes[i];
    if (n.kind != ir::NodeKind::kCompute) continue;
    const double samples = static_cast<double>(cuts[static_cast<size_t>(n.microbatch)].count);
    const size_t c = n.chunk.index();
    costs[i] = 1;
    if (n.pass == ir::Pass::kForward) costs[i] += samples * forward[c];
    if (n.pass == ir::Pass::kBackward) costs[i] += samples * backward[c];
    if (n.pass == ir::Pass::kInputGrad) costs[i] += samples * (backward[c] - weights[c]);
    if (n.pass == ir::Pass::kWeightGrad) costs[i] += samples * weights[c];
  }
  return costs;
}

}  // namespace piper::passes
