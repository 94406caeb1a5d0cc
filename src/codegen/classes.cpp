#include "codegen/classes.h"

#include <map>

namespace piper::codegen {

RankClasses find_classes(const ir::TrainingDag& dag) {
  RankClasses out;
  std::map<std::vector<ir::PlacementId>, int32_t> index;
  const int64_t world = dag.mesh.world_size();
  for (int64_t rank = 0; rank < world; ++rank) {
    std::vector<ir::PlacementId> placements;
    for (size_t p = 0; p < dag.placements.size(); ++p) {
      if (ir::contains(dag.mesh, dag.placements[p], static_cast<int32_t>(rank))) placements.push_back(ir::PlacementId(static_cast<int64_t>(p)));
    }
    const auto [it, fresh] = index.try_emplace(placements, static_cast<int32_t>(out.classes.size()));
    if (fresh) out.classes.push_back({std::move(placements), static_cast<int32_t>(rank)});
    out.class_of.push_back(it->second);
  }
  return out;
}

}  // namespace piper::codegen
