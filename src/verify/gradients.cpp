// What scales and reports gradients is complete, and complete once, where it is used: the counts of valid targets, the
// sums of the loss, the norm. The gradients themselves are followed in flow.cpp.
#include <fmt/format.h>

#include "verify/accounts.h"
#include "verify/flow.h"

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
      : plan_(plan), accounts_(accounts), findings_(findings) {}

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
};

}  // namespace

void check_gradients(const Plan& plan, const Matches& matches, Effects& effects, Findings& findings) {
  Accounts accounts(plan, matches, effects, findings);
  Proof proof(plan, accounts, findings);
  const Exchanges exchanges(plan, effects, accounts, findings);
  check_flows(plan, matches, effects, accounts, exchanges, findings);
  for (const plan::LossTerm& term : plan.loss) proof.check_loss(term);
  proof.check_sources();
  if (plan.clip_norm > 0 || plan.skip_nonfinite) proof.check_norm();
}

}  // namespace piper::verify
