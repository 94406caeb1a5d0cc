// Offsets for buffers of which some may not overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace piper::codegen {

// Places items of the given sizes so that conflicting ones do not overlap: largest first, each into the smallest gap that
// fits (best fit). `conflicts(i, j)` must be symmetric. Returns the bytes used.
template <class Conflicts>
int64_t best_fit(const std::vector<int64_t>& sizes, const Conflicts& conflicts, std::vector<int64_t>& offsets) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  offsets.assign(sizes.size(), 0);
  std::vector<size_t> placed;
  int64_t used = 0;
  for (size_t i : order) {
    std::vector<std::pair<int64_t, int64_t>> taken;  // [begin, end)
    for (size_t j : placed) {
      if (conflicts(i, j)) taken.emplace_back(offsets[j], offsets[j] + sizes[j]);
    }
    std::sort(taken.begin(), taken.end());
    int64_t at = 0, best = -1, best_gap = 0;
    for (const auto& [begin, end] : taken) {
      const int64_t gap = begin - at;
      if (gap >= sizes[i] && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, end);
    }
    offsets[i] = best >= 0 ? best : at;
    used = std::max(used, offsets[i] + sizes[i]);
    placed.push_back(i);
  }
  return used;
}

}  // namespace piper::codegen
