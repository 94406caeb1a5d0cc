// Gradients and statistics are complete, and complete once, where they are used.
//
// For every trainable parameter (and statistic that steps advance) whose gradient kernels accumulate: the kernels cover
// every sample of every microbatch as often as the contract has contributions; what norms and updates read is the sum
// of the contributions of all holders, each once; and over all ranks the norm counts it once. Likewise for the counts
// of valid targets that scale the gradients, for the sums of the loss, and for the norm itself.
//
// Gradients that reach their update in another way (reduce-scattered shards) are not covered by this proof.
#include <fmt/format.h>

#include <cmath>

#include "plan/check.h"
#include "verify/accounts.h"

namespace piper::verify {

namespace {

using plan::BufferRange;
using plan::Instruction;
using plan::Opcode;
using plan::Plan;
using support::Code;

// Adds what every opcode but computations does to a sum; true when that was all.
bool put_common(Opcode opcode, int instruction, std::vector<Entry>* ledger) {
  if (opcode == Opcode::kZero) ledger->push_back({Entry::Kind::kReset, instruction});
  if (opcode == Opcode::kAllReduce) ledger->push_back({Entry::Kind::kReduce, instruction});
  if (opcode == Opcode::kBroadcast) ledger->push_back({Entry::Kind::kBroadcast, instruction});
  return opcode == Opcode::kZero || opcode == Opcode::kAllReduce || opcode == Opcode::kBroadcast;
}

class Proof {
 public:
  Proof(const Plan& plan, Accounts& accounts, Findings& findings)
      : plan_(plan), accounts_(accounts), findings_(findings), contributions_(plan.params.size(), 0) {
    for (const plan::Contribution& c : plan.contract.contributions) contributions_[c.param]++;
  }

  void check_param(int param) {
    std::vector<Place> places;
    for (size_t p = 0; p < plan_.programs.size(); p++) {
      if (accounts_.ranks(static_cast<int>(p)).empty()) continue;
      for (const plan::ParamHome& home : plan_.programs[p].params) {
        if (home.param == param && !find_gradient(static_cast<int>(p), home, &places)) return;
      }
    }
    if (places.empty()) return;
    const bool statistics = plan_.params[param].statistics;
    std::string name = (statistics ? "the contributions to `" : "the gradient of `") + plan_.params[param].name + "`";
    accounts_.check_whole(name, places);
    accounts_.check_samples(name, places, contributions_[param]);
    check_total(name, places);
    check_normed(name, places, statistics ? 0 : 1);
  }

  // The sum and the count of a term of the loss, as all ranks report them after the step, and as computations use them.
  void check_loss(const plan::LossTerm& term) {
    for (bool count : {false, true}) {
      std::vector<Place> places = stats_places(count ? term.count_index : term.sum_index);
      std::string name = fmt::format("the {} of loss `{}`", count ? "number of valid elements" : "sum", term.name);
      accounts_.check_whole(name, places);
      accounts_.check_samples(name, places, 1);
      Ledgers ledgers;
      uint64_t total = 0;
      for (const Place& place : places) {
        for (int rank : accounts_.ranks(place.program)) {
          for (const Use& use : place.uses) {
            if (put_common(accounts_.at(place, use).opcode, use.instruction, &ledgers[rank]) || use.adds == 0) continue;
            ledgers[rank].push_back({Entry::Kind::kAdd, use.instruction, fingerprint(rank, use.instruction)});
            total += fingerprint(rank, use.instruction);
          }
          ledgers[rank].push_back({Entry::Kind::kUse, place.uses.empty() ? 0 : place.uses.back().instruction});
        }
      }
      accounts_.check_seen(name, ledgers, total);
      if (count) check_copies(name, places, total);
    }
  }

  // Copies among statistics are of counts, and whole: what else could scale gradients.
  void check_sources() {
    for (size_t p = 0; p < plan_.programs.size(); p++) {
      const plan::Program& program = plan_.programs[p];
      for (size_t i = 0; i < program.instructions.size() && !accounts_.ranks(static_cast<int>(p)).empty(); i++) {
        const Instruction& copy = program.instructions[i];
        if (copy.opcode != Opcode::kCopy || program.buffers[copy.ranges[1].buffer].kind != plan::BufferKind::kStats) continue;
        const BufferRange& source = copy.ranges[0];
        bool counts = false;
        for (const plan::LossTerm& term : plan_.loss) {
          counts = counts || (source.buffer == program.stats_buffer && source.offset == term.count_index * 8 && source.fixed == 8);
        }
        if (counts) continue;
        int rank = accounts_.ranks(static_cast<int>(p)).front();
        findings_.add(Code::E0607, rank, static_cast<int>(i),
                      findings_.name(rank, static_cast<int>(i)) + " copies something else than a count into statistics");
      }
    }
  }

  // The sum of squares and the number of non-finite elements that updates read.
  void check_norm() {
    for (int index : {0, 1}) {
      std::vector<Place> places = stats_places(index);
      accounts_.check_whole("the gradient norm", places);
      Ledgers ledgers;
      uint64_t total = 0;
      for (const Place& place : places) {
        for (int rank : accounts_.ranks(place.program)) {
          for (const Use& use : place.uses) {
            Opcode opcode = accounts_.at(place, use).opcode;
            if (put_common(opcode, use.instruction, &ledgers[rank])) continue;
            if (opcode == Opcode::kUpdate) ledgers[rank].push_back({Entry::Kind::kUse, use.instruction});
            if (opcode != Opcode::kNorm) continue;
            ledgers[rank].push_back({Entry::Kind::kAdd, use.instruction, fingerprint(rank, use.instruction)});
            total += fingerprint(rank, use.instruction);
          }
        }
      }
      accounts_.check_seen("the gradient norm", ledgers, total);
    }
  }

 private:
  std::vector<Place> stats_places(int index) {
    std::vector<Place> places;
    for (size_t p = 0; p < plan_.programs.size(); p++) {
      int buffer = plan_.programs[p].stats_buffer;
      if (buffer < 0 || accounts_.ranks(static_cast<int>(p)).empty()) continue;
      places.push_back(accounts_.place(static_cast<int>(p), buffer, index * 8, (index + 1) * 8));
    }
    return places;
  }

  // Adds the gradient of a home; false when it reaches the update in a way that this proof does not cover.
  bool find_gradient(int p, const plan::ParamHome& home, std::vector<Place>* out) {
    const plan::Param& param = plan_.params[home.param];
    int64_t begin = home.offset, end = home.offset + plan::tensor_bytes(param.dtype, param.shape);
    if (begin == end) return true;
    for (int i : accounts_.touching(p, home.buffer)) {
      const Instruction& update = plan_.programs[p].instructions[i];
      if (update.opcode != Opcode::kUpdate) continue;
      const BufferRange& value = update.ranges[0];
      if (value.buffer != home.buffer || value.offset > begin || end > value.offset + value.fixed) continue;
      const BufferRange& gradient = update.ranges[1];
      int64_t shift = gradient.offset - value.offset;
      Place place = accounts_.place(p, gradient.buffer, begin + shift, end + shift);
      for (const Use& use : place.uses) {
        Opcode opcode = accounts_.at(place, use).opcode;
        bool known = opcode == Opcode::kCompute || opcode == Opcode::kAllReduce || opcode == Opcode::kZero || opcode == Opcode::kBroadcast;
        if (!known && use.writes) return false;
      }
      out->push_back(std::move(place));
      return true;
    }
    return false;
  }

  void check_total(const std::string& name, const std::vector<Place>& places) {
    Ledgers ledgers;
    uint64_t total = 0;
    for (const Place& place : places) {
      for (int rank : accounts_.ranks(place.program)) {
        for (const Use& use : place.uses) {
          if (put_common(accounts_.at(place, use).opcode, use.instruction, &ledgers[rank])) continue;
          if (!use.writes) ledgers[rank].push_back({Entry::Kind::kUse, use.instruction});
          for (int k = 0; k < use.adds; k++) {
            ledgers[rank].push_back({Entry::Kind::kAdd, use.instruction, fingerprint(rank, use.instruction)});
            total += fingerprint(rank, use.instruction);
          }
        }
      }
    }
    accounts_.check_seen(name, ledgers, total);
  }

  // A norm that leaves out a gradient clips too late; one that counts copies several times, or statistics, too early.
  void check_normed(const std::string& name, const std::vector<Place>& places, int times) {
    if (plan_.clip_norm <= 0 && !plan_.skip_nonfinite) return;
    double weight = 0;
    for (const Place& place : places) {
      for (const Use& use : place.uses) {
        const Instruction& instruction = accounts_.at(place, use);
        if (instruction.opcode == Opcode::kNorm) weight += instruction.scale * static_cast<double>(accounts_.ranks(place.program).size());
      }
    }
    if (std::abs(weight - times) < 1e-9) return;
    findings_.add(
        Code::E0607, -1, -1,
        fmt::format("the norm counts {} {} times instead of {}", name, weight, times == 1 ? "once" : "never"));
  }

  // The counts that scale gradients: copies, reduced over the ranks that counted, complete where computations read them.
  void check_copies(const std::string& name, const std::vector<Place>& places, uint64_t total) {
    Ledgers ledgers;
    for (const Place& place : places) {
      for (size_t k = 0; k < place.uses.size(); k++) {
        const Instruction& copy = accounts_.at(place, place.uses[k]);
        if (copy.opcode != Opcode::kCopy || !place.uses[k].reads || place.uses[k].partly) continue;
        int64_t at = copy.ranges[1].offset + place.begin - copy.ranges[0].offset;
        Place other = accounts_.place(place.program, copy.ranges[1].buffer, at, at + place.end - place.begin);
        accounts_.check_whole(name, {other});
        for (int rank : accounts_.ranks(place.program)) follow(rank, place, k, other, &ledgers[rank]);
      }
    }
    accounts_.check_seen(name, ledgers, total);
  }

  // What becomes of the copy that use `copied` of `place` makes.
  void follow(int rank, const Place& place, size_t copied, const Place& other, std::vector<Entry>* ledger) {
    uint64_t so_far = 0;
    for (size_t k = 0; k < copied; k++) {
      if (place.uses[k].adds > 0) so_far += fingerprint(rank, place.uses[k].instruction);
    }
    for (const Use& use : other.uses) {
      Opcode opcode = accounts_.at(other, use).opcode;
      if (put_common(opcode, use.instruction, ledger)) continue;
      if (use.instruction == place.uses[copied].instruction) {
        ledger->push_back({Entry::Kind::kReset, use.instruction});
        ledger->push_back({Entry::Kind::kAdd, use.instruction, so_far});
      } else if (opcode == Opcode::kCompute) {
        ledger->push_back({Entry::Kind::kUse, use.instruction});
      }
    }
  }

  const Plan& plan_;
  Accounts& accounts_;
  Findings& findings_;
  std::vector<int> contributions_;  // to each parameter
};

}  // namespace

void check_gradients(const Plan& plan, const Matches& matches, Effects& effects, Findings& findings) {
  Accounts accounts(plan, matches, effects, findings);
  Proof proof(plan, accounts, findings);
  for (size_t i = 0; i < plan.params.size(); i++) {
    if (plan.params[i].trainable || plan.params[i].statistics) proof.check_param(static_cast<int>(i));
  }
  for (const plan::LossTerm& term : plan.loss) proof.check_loss(term);
  proof.check_sources();
  if (plan.clip_norm > 0 || plan.skip_nonfinite) proof.check_norm();
}

}  // namespace piper::verify
