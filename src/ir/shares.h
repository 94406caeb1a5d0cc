// How the batch is cut: first into microbatches, then each along a placement's data axes (compiler.md).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/dag.h"

namespace piper::ir {

struct Interval {
  int64_t start = 0;
  int64_t count = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// `batch` samples cut into `microbatches` contiguous intervals whose sizes differ by at most one, larger ones first.
std::vector<Interval> cut_microbatches(int64_t batch, int64_t microbatches);

// shares[mb][d]: microbatch mb cut over `degree` members. Sizes differ by at most one; the members that get the extra
// samples rotate from one microbatch to the next, so that over a step nobody has much more than another.
std::vector<std::vector<Interval>> cut_shares(int64_t batch, int64_t microbatches, int64_t degree);

// Axes of size > 1 that a placement spans: all of them carry data. Outer axis first.
std::vector<int> spanned_axes(const Mesh& mesh, const Placement& placement);
int64_t data_degree(const Mesh& mesh, const Placement& placement);
// Index of a rank along the placement's spanned axes, row-major: which share it holds.
int64_t data_index(const Mesh& mesh, const Placement& placement, int64_t rank);
// Rank with that data index.
int32_t rank_at(const Mesh& mesh, const Placement& placement, int64_t data_index);

}  // namespace piper::ir
