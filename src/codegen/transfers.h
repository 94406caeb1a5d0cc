// Who sends what to whom between two placements: each receiver gets the intersections of its share of a microbatch with the
// senders' shares, and gradients go the same ways back. A value without samples goes to every receiver from one sender, and
// each receiver's part of its gradient back to that one, where the parts are added up in rank order.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "ir/dag.h"
#include "ir/shares.h"

namespace piper::codegen {

// One of the transfers of a rank between its placement and another, in ascending order of the other side.
struct TransferKey {
  ir::PlacementId own, other;
  int32_t microbatch = -1;  // -1: the same in all
  int32_t slot = 0;         // which of them
  bool batched = true;      // of a value with a sample dim; else the whole value goes to everybody
  bool send = true;         // of an unbatched value: forward goes out here, its gradient comes back
  friend auto operator<=>(const TransferKey&, const TransferKey&) = default;
};

class Transfers {
 public:
  Transfers(const ir::TrainingDag& dag, int64_t batch) : dag_(dag), batch_(batch) {}

  // The transfers of a node (a send or a receive) as `rank` does them.
  std::vector<TransferKey> of(const ir::Node& node, int64_t rank);
  // The other rank of a transfer of `rank`.
  int32_t peer(const TransferKey& key, int64_t rank);
  // The samples that travel, from the start of the rank's share. count -1: all of them.
  ir::Interval piece(const TransferKey& key, int64_t rank);

 private:
  int64_t degree(ir::PlacementId placement) const { return ir::data_degree(dag_.mesh, dag_.placements[placement.index()]); }
  const std::vector<std::vector<ir::Interval>>& shares(ir::PlacementId placement);
  // Index of the other side and the samples in common, for each member of the other side that has some.
  std::vector<std::pair<int64_t, ir::Interval>> common(const TransferKey& key, int64_t rank);

  const ir::TrainingDag& dag_;
  int64_t batch_;
  std::map<int64_t, std::vector<std::vector<ir::Interval>>> shares_;  // by data degree
};

}  // namespace piper::codegen
