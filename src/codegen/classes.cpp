#include "codegen/classes.h"

#include <algorithm>
#include <map>

namespace piper::codegen {

namespace {

// How many pieces each value that travels between placements of different width comes in, for a rank: such ranks do
// different work.
std::vector<size_t> pieces_of(const ir::TrainingDag& dag, Transfers& transfers, const std::vector<ir::PlacementId>& placements, int64_t rank) {
  std::vector<size_t> counts;
  for (const ir::Node& node : dag.nodes) {
    if (node.kind != ir::NodeKind::kSend && node.kind != ir::NodeKind::kRecv) continue;
    if (!std::binary_search(placements.begin(), placements.end(), node.placement)) continue;
    const auto degree = [&](ir::PlacementId p) { return ir::data_degree(dag.mesh, dag.placements[p.index()]); };
    if (degree(node.placement) != degree(node.peer)) counts.push_back(transfers.of(node, rank).size());
  }
  return counts;
}

}  // namespace

RankClasses find_classes(const ir::TrainingDag& dag, Transfers& transfers) {
  RankClasses out;
  std::map<std::pair<std::vector<ir::PlacementId>, std::vector<size_t>>, int32_t> index;
  const int64_t world = dag.mesh.world_size();
  for (int64_t rank = 0; rank < world; ++rank) {
    std::vector<ir::PlacementId> placements;
    for (size_t p = 0; p < dag.placements.size(); ++p) {
      if (ir::contains(dag.mesh, dag.placements[p], static_cast<int32_t>(rank))) placements.push_back(ir::PlacementId(static_cast<int64_t>(p)));
    }
    std::vector<size_t> pieces = pieces_of(dag, transfers, placements, rank);
    const auto [it, fresh] = index.try_emplace({placements, std::move(pieces)}, static_cast<int32_t>(out.classes.size()));
    if (fresh) out.classes.push_back({std::move(placements), static_cast<int32_t>(rank)});
    out.class_of.push_back(it->second);
  }
  return out;
}

}  // namespace piper::codegen
