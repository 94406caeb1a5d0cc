#include "ir/shares.h"

#include <algorithm>

namespace piper::ir {

std::vector<Interval> cut_microbatches(int64_t batch, int64_t microbatches) {
  std::vector<Interval> cuts;
  int64_t start = 0;
  for (int64_t i = 0; i < microbatches; ++i) {
    const int64_t count = batch / microbatches + (i < batch % microbatches ? 1 : 0);
    cuts.push_back({start, count});
    start += count;
  }
  return cuts;
}

std::vector<std::vector<Interval>> cut_shares(int64_t batch, int64_t microbatches, int64_t degree) {
  std::vector<std::vector<Interval>> shares;
  int64_t rotation = 0;
  for (const Interval& mb : cut_microbatches(batch, microbatches)) {
    const int64_t base = mb.count / degree, extra = mb.count % degree;
    std::vector<Interval> row;
    int64_t start = mb.start;
    for (int64_t d = 0; d < degree; ++d) {
      const bool larger = (d - rotation + degree) % degree < extra;
      row.push_back({start, base + (larger ? 1 : 0)});
      start += row.back().count;
    }
    rotation = (rotation + extra) % degree;
    shares.push_back(std::move(row));
  }
  return shares;
}

std::vector<int> spanned_axes(const Mesh& mesh, const Placement& placement) {
  std::vector<int> axes;
  for (int a = 0; a < static_cast<int>(mesh.axes.size()); ++a) {
    const bool fixed = std::any_of(placement.fixed.begin(), placement.fixed.end(), [a](const auto& f) { return f.first == a; });
    if (!fixed && mesh.axes[static_cast<size_t>(a)].size > 1) axes.push_back(a);
  }
  return axes;
}

int64_t data_degree(const Mesh& mesh, const Placement& placement) {
  int64_t degree = 1;
  for (int a : spanned_axes(mesh, placement)) degree *= mesh.axes[static_cast<size_t>(a)].size;
  return degree;
}

int64_t data_index(const Mesh& mesh, const Placement& placement, int64_t rank) {
  const std::vector<int64_t> at = coordinates_of(mesh, rank);
  int64_t index = 0;
  for (int a : spanned_axes(mesh, placement)) {
    index = index * mesh.axes[static_cast<size_t>(a)].size + at[static_cast<size_t>(a)];
  }
  return index;
}

int32_t rank_at(const Mesh& mesh, const Placement& placement, int64_t data_index) {
  std::vector<int64_t> at(mesh.axes.size(), 0);
  for (const auto& [axis, coordinate] : placement.fixed) at[static_cast<size_t>(axis)] = coordinate;
  const std::vector<int> axes = spanned_axes(mesh, placement);
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t size = mesh.axes[static_cast<size_t>(axes[i])].size;
    at[static_cast<size_t>(axes[i])] = data_index % size;
    data_index /= size;
  }
  int64_t rank = 0;
  for (size_t a = 0; a < at.size(); ++a) rank = rank * mesh.axes[a].size + at[a];
  return static_cast<int32_t>(rank);
}

}  // namespace piper::ir
