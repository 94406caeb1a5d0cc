#include "verify/accounts.h"

#include <fmt/format.h>

namespace piper::verify {

using plan::BufferRange;
using plan::Instruction;
using plan::Opcode;
using plan::Plan;
using support::Code;

Accounts::Accounts(const Plan& plan, const Matches& matches, Effects& effects, Findings& findings)
    : plan_(plan), matches_(matches), effects_(effects), findings_(findings), microbatches_(microbatches_of(plan)),
      ranks_(plan.programs.size()) {
  for (size_t r = 0; r < plan.ranks.size(); r++) ranks_[plan.ranks[r].program].push_back(static_cast<int>(r));
  for (const plan::Program& program : plan.programs) {
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

Place Accounts::place(int program, int buffer, int64_t begin, int64_t end) {
  Place place{program, buffer, begin, end, {}};
  int rank = ranks_[program].front();
  for (int i : touching_[program][buffer]) {
    const Instruction& instruction = plan_.programs[program].instructions[i];
    Use use{i};
    auto overlaps = [&](const Effect& effect) {
      const BufferRange& range = instruction.ranges[effect.range];
      return range.buffer == buffer && range.offset + effect.begin < end && begin < range.offset + effect.end;
    };
    for (const Effect& effect : effects_.of(rank, instruction)) {
      if (!overlaps(effect)) continue;
      const BufferRange& range = instruction.ranges[effect.range];
      (effect.access == plan::Access::kRead ? use.reads : use.writes) = true;
      use.partly = use.partly || range.offset + effect.begin > begin || end > range.offset + effect.end;
    }
    if (instruction.opcode == Opcode::kCompute && use.writes) {
      for (const Effect& output : effects_.outputs_of(instruction.chunk)) use.adds += overlaps(output) ? 1 : 0;
    }
    if (use.reads || use.writes) place.uses.push_back(use);
  }
  return place;
}

void Accounts::check_whole(const std::string& name, const std::vector<Place>& places) {
  for (const Place& place : places) {
    for (const Use& use : place.uses) {
      if (!use.partly) continue;
      int rank = ranks_[place.program].front();
      findings_.add(Code::E0607, rank, use.instruction,
                    fmt::format("{} touches only a part of {}", findings_.name(rank, use.instruction), name));
    }
  }
}

void Accounts::check_samples(const std::string& name, const std::vector<Place>& places, int times) {
  std::vector<Coverage> coverage(microbatches_.size());
  for (const Place& place : places) {
    for (const Use& use : place.uses) {
      const Instruction& instruction = at(place, use);
      if (use.adds == 0 || instruction.share < 0) continue;
      for (int rank : ranks_[place.program]) {
        const plan::Share& share = plan_.ranks[rank].shares[instruction.share][instruction.microbatch];
        for (int k = 0; k < use.adds; k++) coverage[instruction.microbatch].add({share.start, share.start + share.count});
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

void Accounts::check_seen(const std::string& name, const Ledgers& ledgers, uint64_t total) {
  for (const Observation& o : settle(matches_, ledgers)) {
    if (o.sum == total) continue;
    findings_.add(Code::E0607, o.event.rank, o.event.instruction,
                  fmt::format("{} is not the sum of all contributions, each once, where {} leaves or uses it", name,
                              findings_.name(o.event.rank, o.event.instruction)),
                  {"a contribution is missing or comes too late, an all-reduce is missing, or one of them runs twice"});
    return;
  }
}

}  // namespace piper::verify
