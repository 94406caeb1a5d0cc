#include "codegen/transfers.h"

#include <algorithm>

namespace piper::codegen {

const std::vector<std::vector<ir::Interval>>& Transfers::shares(ir::PlacementId placement) {
  const int64_t d = degree(placement);
  const auto [it, fresh] = shares_.try_emplace(d);
  if (fresh) it->second = ir::cut_shares(batch_, dag_.microbatches, d);
  return it->second;
}

std::vector<std::pair<int64_t, ir::Interval>> Transfers::common(const TransferKey& key, int64_t rank) {
  const int64_t here = ir::data_index(dag_.mesh, dag_.placements[key.own.index()], rank), mine = degree(key.own), theirs = degree(key.other);
  std::vector<std::pair<int64_t, ir::Interval>> found;
  if (mine == theirs) {
    found.push_back({here, {0, -1}});
  } else if (!key.batched) {
    // Every receiver has one sender.
    for (int64_t other = 0; other < theirs; ++other) {
      const bool pair = key.send ? other * mine / theirs == here : here * theirs / mine == other;
      if (pair) found.push_back({other, {0, -1}});
    }
  } else {
    const size_t mb = static_cast<size_t>(key.microbatch);
    const ir::Interval own = shares(key.own)[mb][static_cast<size_t>(here)];
    for (int64_t other = 0; other < theirs; ++other) {
      const ir::Interval its = shares(key.other)[mb][static_cast<size_t>(other)];
      const int64_t begin = std::max(own.start, its.start), end = std::min(own.start + own.count, its.start + its.count);
      if (begin < end) found.push_back({other, {begin - own.start, end - begin}});
    }
  }
  return found;
}

std::vector<TransferKey> Transfers::of(const ir::Node& node, int64_t rank) {
  const bool equal = degree(node.placement) == degree(node.peer);
  const bool batched = equal || !ir::num_elements(dag_.model.value(node.value).type.shape).is_static();
  TransferKey key{node.placement, node.peer, batched && !equal ? node.microbatch : -1, 0, batched, batched || (node.kind == ir::NodeKind::kSend) != node.gradient};
  std::vector<TransferKey> keys;
  for (size_t n = common(key, rank).size(); keys.size() < n; ++key.slot) keys.push_back(key);
  return keys;
}

int32_t Transfers::peer(const TransferKey& key, int64_t rank) {
  return ir::rank_at(dag_.mesh, dag_.placements[key.other.index()], common(key, rank)[static_cast<size_t>(key.slot)].first);
}

ir::Interval Transfers::piece(const TransferKey& key, int64_t rank) { return common(key, rank)[static_cast<size_t>(key.slot)].second; }

}  // namespace piper::codegen
