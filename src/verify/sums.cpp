#include "verify/sums.h"

namespace piper::verify {

namespace {

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool is_meeting(const Entry& entry) { return entry.kind == Entry::Kind::kReduce || entry.kind == Entry::Kind::kBroadcast; }

struct State {
  const std::vector<Entry>* ledger = nullptr;
  size_t next = 0;
  uint64_t sum = 0;
  bool waits_in(int instruction) const {
    return next < ledger->size() && is_meeting((*ledger)[next]) && (*ledger)[next].instruction == instruction;
  }
};

class Settlement {
 public:
  Settlement(const Matches& matches, const Ledgers& ledgers) : matches_(matches) {
    for (const auto& [rank, ledger] : ledgers) states_[rank].ledger = &ledger;
  }

  std::vector<Observation> run() {
    for (auto& [rank, state] : states_) advance(rank, state);
    // Each reduction that completes lets its members go on, to the next reduction at most.
    while (!ready_.empty()) {
      int rank = ready_.back();
      ready_.pop_back();
      State& state = states_.at(rank);
      if (state.next < state.ledger->size()) meet(rank, (*state.ledger)[state.next]);
    }
    return std::move(seen_);
  }

 private:
  // Runs a rank up to its next reduction.
  void advance(int rank, State& state) {
    for (; state.next < state.ledger->size(); state.next++) {
      const Entry& entry = (*state.ledger)[state.next];
      if (is_meeting(entry)) return ready_.push_back(rank);
      if (entry.kind == Entry::Kind::kReset) state.sum = 0;
      if (entry.kind == Entry::Kind::kAdd) state.sum += entry.value;
      if (entry.kind == Entry::Kind::kUse) seen_.push_back({{rank, entry.instruction}, state.sum});
    }
  }

  // Completes the collective that `rank` waits in once all members do; the last of them to come finds it complete.
  void meet(int rank, const Entry& entry) {
    int32_t match = matches_.of[rank][entry.instruction];
    if (match < 0) return;
    uint64_t sum = 0;
    for (Event member : matches_.together[match]) {
      auto it = states_.find(member.rank);
      if (it != states_.end() && !it->second.waits_in(member.instruction)) return;
      // The lowest member is the root of a broadcast.
      if (entry.kind == Entry::Kind::kBroadcast && !(member == matches_.together[match].front())) continue;
      sum += it == states_.end() ? mix(~static_cast<uint64_t>(member.rank)) : it->second.sum;
    }
    for (Event member : matches_.together[match]) {
      auto it = states_.find(member.rank);
      if (it == states_.end()) continue;
      it->second.sum = sum;
      it->second.next++;
      advance(member.rank, it->second);
    }
  }

  const Matches& matches_;
  std::map<int, State> states_;
  std::vector<int> ready_;  // ranks that came to a reduction
  std::vector<Observation> seen_;
};

}  // namespace

std::vector<Observation> settle(const Matches& matches, const Ledgers& ledgers) { return Settlement(matches, ledgers).run(); }

uint64_t fingerprint(int unit, int instruction) {
  return mix((static_cast<uint64_t>(static_cast<uint32_t>(unit)) << 32) | static_cast<uint32_t>(instruction));
}

}  // namespace piper::verify
