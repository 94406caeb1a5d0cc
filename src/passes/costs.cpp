#include "passes/costs.h"

#include <algorithm>
#include <map>

#include "ir/shares.h"
#include "ops/op.h"

namespace piper::passes {

std::vector<double> node_costs(const ir::TrainingDag& dag, int64_t batch) {
  auto flops = [&](const std::vector<ir::OpId>& ops, size_t begin, size_t end, int64_t samples) {
    double sum = 0;
    for (size_t i = begin; i < std::min(end, ops.size()); ++i) sum += ops::flops_of(dag.model, dag.model.op(ops[i]), 1);
    return sum / static_cast<double>(std::max<int64_t>(1, samples));
  };
  std::map<std::tuple<ir::ChunkId, ir::Pass, int32_t>, double> known;
  auto per_sample = [&](const ir::Node& n) {
    const auto [it, fresh] = known.try_emplace({n.chunk, n.pass, n.part}, 0);
    if (!fresh) return it->second;
    const ir::Chunk& chunk = dag.chunk(n.chunk);
    const std::vector<ir::OpId> ops = n.pass == ir::Pass::kForward      ? chunk.forward
                                      : n.pass == ir::Pass::kBackward   ? chunk.backward
                                      : n.pass == ir::Pass::kInputGrad  ? ir::halves_of(dag.model, chunk).inputs
                                      : n.pass == ir::Pass::kWeightGrad ? chunk.weight_backward
                                                                        : std::vector<ir::OpId>();
    if (n.part < 0) return it->second = flops(ops, 0, ops.size(), chunk.samples);
    const ir::Part& part = ir::parts_of(chunk, n.pass)[static_cast<size_t>(n.part)];
    return it->second = flops(ops, part.begin, part.end, chunk.samples);
  };
  const auto cuts = ir::cut_microbatches(batch, dag.microbatches);
  std::vector<double> costs(dag.nodes.size(), 0);
  for (size_t i = 0; i < dag.nodes.size(); ++i) {
    const ir::Node& n = dag.nodes[i];
    if (n.kind != ir::NodeKind::kCompute) continue;
    const double all = static_cast<double>(cuts[static_cast<size_t>(n.microbatch)].count);
    const double samples = all / static_cast<double>(ir::data_degree(dag.mesh, dag.placements[n.placement.index()]));
    costs[i] = 1 + samples * per_sample(n);
  }
  return costs;
}

}  // namespace piper::passes
