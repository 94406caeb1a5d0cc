// Gradients and statistics are complete, and complete once, where they are used.
//
// For every trainable parameter that is updated from a gradient which computations accumulate: the computations cover
// every sample of every microbatch once for each contribution of the contract; the gradient starts from zero; and what
// norms and updates read is the sum of all contributions of all holders, each once. Likewise for the counts of valid
// targets that scale the gradients, and for the norm, which has to be the same on all ranks.
//
// Gradients that reach their update in another way (reduce-scattered shards) are not covered by this proof.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/check.h"
#include "verify/coverage.h"
#include "verify/sums.h"

namespace piper::verify {

namespace {

using plan::Access;
using plan::BufferRange;
using plan::Instruction;
using plan::Opcode;
using plan::Plan;
using plan::Program;
using support::Code;

// Bytes of a buffer of a program that hold a sum, with the instructions that touch them, in issue order.
struct Place {
  int program = -1;
  int buffer = -1;
  int64_t begin = 0, end = 0;
  std::vector<int> uses;

  // Sums do not depend on samples, so neither do the ranges that hold them.
  bool touches(const BufferRange& range) const {
    return range.buffer == buffer && range.offset < end && begin < range.offset + range.fixed;
  }
  Access access(const Instruction& instruction) const {
    int bits = 0;
    for (const BufferRange& range : instruction.ranges) {
      if (touches(range)) bits |= static_cast<int>(range.access);
    }
    return static_cast<Access>(bits);
  }
};

class Accounts {
 public:
  Accounts(const Plan& plan, const Matches& matches, Findings& findings)
      : plan_(plan), matches_(matches), findings_(findings), microbatches_(microbatches_of(plan)), ranks_(plan.programs.size()),
        contributions_(plan.params.size()) {
    for (size_t r = 0; r < plan.ranks.size(); r++) ranks_[plan.ranks[r].program].push_back(static_cast<int>(r));
    for (const plan::Contribution& c : plan.contract.contributions) contributions_[c.param].insert(c.chunk);
    index_buffers();
  }

  void check_param(int param) {
    std::vector<Place> places;
    for (size_t p = 0; p < plan_.programs.size(); p++) {
      if (ranks_[p].empty()) continue;
      for (const plan::ParamHome& home : plan_.programs[p].params) {
        if (home.param == param && !find_gradient(static_cast<int>(p), home, &places)) return;
      }
    }
    if (places.empty()) return;
    std::string name = "the gradient of `" + plan_.params[param].name + "`";
    check_start(name, places);
    check_samples(name, places, static_cast<int>(contributions_[param].size()));
    check_total(name, places, true);
    check_normed(name, places);
  }

  // Counts of valid targets: complete where a computation reads them to scale gradients.
  void check_count(const plan::LossTerm& term) {
    std::vector<Place> places = stats_places(term.count_index, 1);
    std::string name = "the count of valid targets of `" + term.name + "`";
    bool counted = false;
    for (const Place& place : places) {
      for (int i : place.uses) counted = counted || adds(place, i);
    }
    if (!counted) return;
    check_samples(name, places, 1);
    check_total(name, places, false);
  }

  // The norm that updates read: the same on all ranks, so it has the norms of all.
  void check_norm() {
    Ledgers ledgers;
    for (const Place& place : stats_places(0, 2)) {
      for (int rank : ranks_[place.program]) {
        for (int i : place.uses) {
          Opcode opcode = at(place, i).opcode;
          // Ranks of a program do the same, so what they add counts as equal.
          if (opcode == Opcode::kNorm) ledgers[rank].push_back({Entry::Kind::kAdd, i, fingerprint(place.program, i)});
          if (opcode == Opcode::kZero) ledgers[rank].push_back({Entry::Kind::kReset, i});
          if (opcode == Opcode::kAllReduce) ledgers[rank].push_back({Entry::Kind::kReduce, i});
          if (opcode == Opcode::kUpdate) ledgers[rank].push_back({Entry::Kind::kUse, i});
        }
      }
    }
    std::vector<Observation> seen = settle(matches_, ledgers);
    for (const Observation& o : seen) {
      if (o.sum == seen.front().sum) continue;
      Event first = seen.front().event;
      findings_.add(Code::E0607, o.event.rank, o.event.instruction, "two updates read different gradient norms",
                    {findings_.name(first.rank, first.instruction), findings_.name(o.event.rank, o.event.instruction)});
      return;
    }
  }

 private:
  // Instructions by the buffers that they touch, so that a sum costs what touches it.
  void index_buffers() {
    for (const Program& program : plan_.programs) {
      std::vector<std::vector<int>> of(program.buffers.size());
      for (size_t i = 0; i < program.instructions.size(); i++) {
        for (const BufferRange& range : program.instructions[i].ranges) {
          std::vector<int>& list = of[range.buffer];
          if (list.empty() || list.back() != static_cast<int>(i)) list.push_back(static_cast<int>(i));
        }
      }
      touching_.push_back(std::move(of));
    }
  }

  const Instruction& at(const Place& place, int i) const { return plan_.programs[place.program].instructions[i]; }

  Place make_place(int program, int buffer, int64_t begin, int64_t end) const {
    Place place{program, buffer, begin, end, {}};
    for (int i : touching_[program][buffer]) {
      const std::vector<BufferRange>& ranges = at(place, i).ranges;
      if (std::any_of(ranges.begin(), ranges.end(), [&](const BufferRange& r) { return place.touches(r); })) place.uses.push_back(i);
    }
    return place;
  }

  std::vector<Place> stats_places(int index, int count) const {
    std::vector<Place> places;
    for (size_t p = 0; p < plan_.programs.size(); p++) {
      int buffer = plan_.programs[p].stats_buffer;
      if (buffer >= 0 && !ranks_[p].empty()) places.push_back(make_place(static_cast<int>(p), buffer, index * 8, (index + count) * 8));
    }
    return places;
  }

  // Adds the gradient of a home; false when it reaches the update in a way that this proof does not cover.
  bool find_gradient(int p, const plan::ParamHome& home, std::vector<Place>* out) {
    const plan::Param& param = plan_.params[home.param];
    int64_t begin = home.offset, end = home.offset + plan::tensor_bytes(param.dtype, param.shape);
    if (begin == end) return true;
    for (int i : touching_[p][home.buffer]) {
      const Instruction& update = plan_.programs[p].instructions[i];
      const BufferRange& value = update.ranges[0];
      bool updates = update.opcode == Opcode::kUpdate && value.buffer == home.buffer && value.offset <= begin &&
                     end <= value.offset + value.fixed;
      if (!updates) continue;
      const BufferRange& gradient = update.ranges[1];
      int64_t shift = gradient.offset - value.offset;
      Place place = make_place(p, gradient.buffer, begin + shift, end + shift);
      for (int use : place.uses) {
        Opcode opcode = at(place, use).opcode;
        bool known = opcode == Opcode::kCompute || opcode == Opcode::kAllReduce || opcode == Opcode::kZero;
        if (!known && place.access(at(place, use)) != Access::kRead) return false;
      }
      out->push_back(std::move(place));
      return true;
    }
    return false;
  }

  bool adds(const Place& place, int i) const {
    const Instruction& instruction = at(place, i);
    return instruction.opcode == Opcode::kCompute && place.access(instruction) != Access::kRead;
  }

  void check_start(const std::string& name, const std::vector<Place>& places) {
    for (const Place& place : places) {
      if (place.access(at(place, place.uses.front())) == Access::kWrite) continue;
      int rank = ranks_[place.program].front(), first = place.uses.front();
      findings_.add(Code::E0607, rank, first,
                    fmt::format("{} does not start from zero in program `{}`", name, plan_.programs[place.program].name),
                    {findings_.name(rank, first) + " is the first to use it and keeps what the last step left"});
    }
  }

  void check_samples(const std::string& name, const std::vector<Place>& places, int times) {
    std::vector<Coverage> coverage(microbatches_.size());
    for (const Place& place : places) {
      for (int i : place.uses) {
        const Instruction& instruction = at(place, i);
        if (!adds(place, i) || instruction.share < 0) continue;
        for (int rank : ranks_[place.program]) {
          const plan::Share& share = plan_.ranks[rank].shares[instruction.share][instruction.microbatch];
          coverage[instruction.microbatch].add({share.start, share.start + share.count});
        }
      }
    }
    for (size_t m = 0; m < coverage.size(); m++) {
      std::string wrong = coverage[m].differs(microbatches_[m], times);
      if (wrong.empty()) continue;
      findings_.add(Code::E0607, -1, -1,
                    fmt::format("{} does not get every sample as often as it should: microbatch {} has samples {}", name, m, wrong));
      return;
    }
  }

  // What is read is the sum of all contributions, each once. Norms and updates read gradients; of the statistics they
  // see more than they use, so only computations count as readers there.
  void check_total(const std::string& name, const std::vector<Place>& places, bool of_gradient) {
    Ledgers ledgers;
    uint64_t total = 0;
    for (const Place& place : places) {
      for (int rank : ranks_[place.program]) {
        std::vector<Entry>& ledger = ledgers[rank];
        for (int i : place.uses) {
          Opcode opcode = at(place, i).opcode;
          bool uses = place.access(at(place, i)) == Access::kRead && (opcode == Opcode::kCompute || of_gradient);
          if (opcode == Opcode::kZero) ledger.push_back({Entry::Kind::kReset, i});
          if (opcode == Opcode::kAllReduce) ledger.push_back({Entry::Kind::kReduce, i});
          if (uses) ledger.push_back({Entry::Kind::kUse, i});
          if (!adds(place, i)) continue;
          ledger.push_back({Entry::Kind::kAdd, i, fingerprint(rank, i)});
          total += fingerprint(rank, i);
        }
      }
    }
    for (const Observation& o : settle(matches_, ledgers)) {
      if (o.sum == total) continue;
      findings_.add(Code::E0607, o.event.rank, o.event.instruction,
                    fmt::format("{} uses {}, which is not the sum of all contributions, each once",
                                findings_.name(o.event.rank, o.event.instruction), name),
                    {"a contribution comes too late, an all-reduce is missing, or one runs twice"});
      return;
    }
  }

  // A norm that leaves out a gradient clips too late and skips too little.
  void check_normed(const std::string& name, const std::vector<Place>& places) {
    if (plan_.clip_norm <= 0 && !plan_.skip_nonfinite) return;
    for (const Place& place : places) {
      for (int i : place.uses) {
        if (at(place, i).opcode == Opcode::kNorm) return;
      }
    }
    findings_.add(Code::E0607, -1, -1, "no norm has seen " + name);
  }

  const Plan& plan_;
  const Matches& matches_;
  Findings& findings_;
  std::vector<Samples> microbatches_;
  std::vector<std::vector<int>> ranks_;           // of each program
  std::vector<std::set<int32_t>> contributions_;  // chunks that contribute to each parameter
  std::vector<std::vector<std::vector<int>>> touching_;  // [program][buffer]: instructions
};

}  // namespace

void check_gradients(const Plan& plan, const Matches& matches, Findings& findings) {
  Accounts accounts(plan, matches, findings);
  for (size_t i = 0; i < plan.params.size(); i++) {
    if (plan.params[i].trainable) accounts.check_param(static_cast<int>(i));
  }
  for (const plan::LossTerm& term : plan.loss) accounts.check_count(term);
  if (plan.clip_norm > 0 || plan.skip_nonfinite) accounts.check_norm();
}

}  // namespace piper::verify
