#include "passes/gathers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace piper::passes {

using ir::BucketId;
using ir::Node;
using ir::NodeId;

namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();

class Residency {
 public:
  // `pool`: the buckets that share a budget.
  Residency(ir::TrainingDag& dag, const std::vector<Step>& steps, ir::PlacementId placement, const std::set<BucketId>& pool)
      : dag_(dag), placement_(placement) {
    for (const Step& step : steps) {
      for (const Step::Piece& piece : step.pieces) {
        std::vector<BucketId> need;
        for (BucketId b : piece.part->reads) {
          if (pool.count(b)) need.push_back(b);
        }
        for (BucketId b : need) uses_[b].push_back(pieces_.size());
        pieces_.push_back({piece.node, std::move(need)});
      }
    }
    for (const auto& [node, need] : pieces_) most_ = std::max(most_, need.size());
  }

  void run(size_t prefetch) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      for (BucketId b : pieces_[i].need) {
        if (!resident_.count(b)) admit(b, i, most_ + prefetch);
        Gathered& g = resident_[b];
        g.last = i;
        auto& inputs = dag_.node(pieces_[i].node).inputs;
        if (std::find(inputs.begin(), inputs.end(), g.gather) == inputs.end()) inputs.push_back(g.gather);
      }
    }
  }

 private:
  struct Piece {
    NodeId node;
    std::vector<BucketId> need;
  };
  struct Gathered {
    NodeId gather;
    size_t last = 0;  // piece
  };

  size_t next_use(BucketId b, size_t from) const {
    const std::vector<size_t>& uses = uses_.at(b);
    const auto it = std::lower_bound(uses.begin(), uses.end(), from);
    return it == uses.end() ? kNever : *it;
  }

  void admit(BucketId b, size_t at, size_t room) {
    Node gather;
    gather.kind = ir::NodeKind::kAllGather;
    gather.bucket = b;
    gather.placement = placement_;
    gather.per_run = true;
    gather.stream = dag_.buckets[b.index()].gather_stream;
    gather.span = dag_.buckets[b.index()].span;
    if (resident_.size() >= room) {
      auto victim = resident_.end();
      for (auto it = resident_.begin(); it != resident_.end(); ++it) {
        const auto& need = pieces_[at].need;
        if (std::find(need.begin(), need.end(), it->first) != need.end()) continue;
        if (victim == resident_.end() || next_use(it->first, at) > next_use(victim->first, at)) victim = it;
      }
      gather.inputs = {pieces_[victim->second.last].node};
      resident_.erase(victim);
    }
    resident_[b] = {dag_.add_node(std::move(gather)), at};
  }

  ir::TrainingDag& dag_;
  ir::PlacementId placement_;
  std::vector<Piece> pieces_;
  std::map<BucketId, std::vector<size_t>> uses_;  // pieces, ascending
  std::map<BucketId, Gathered> resident_;
  size_t most_ = 0;
};

}  // namespace

void add_gathers(ir::TrainingDag& dag, const std::vector<Step>& steps, ir::PlacementId placement) {
  std::map<int64_t, std::set<BucketId>> pools;  // by prefetch
  for (size_t b = 0; b < dag.buckets.size(); ++b) {
    const ir::Bucket& bucket = dag.buckets[b];
    const bool held = std::find(bucket.holders.begin(), bucket.holders.end(), placement) != bucket.holders.end();
    if (held && bucket.gathers()) pools[bucket.prefetch].insert(BucketId(static_cast<int64_t>(b)));
  }
  for (const auto& [prefetch, pool] : pools) {
    Residency(dag, steps, placement, pool).run(static_cast<size_t>(std::min<int64_t>(prefetch, static_cast<int64_t>(pool.size()))));
  }
}

}  // namespace piper::passes
