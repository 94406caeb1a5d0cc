// Every program is walked once, in issue order: without races that is what happens. What a computation makes of rows that
// came from others is of their samples too, until an all-to-all takes it back.
#include "verify/exchanges.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::verify {

namespace {

using plan::Instruction;
using plan::Opcode;
using plan::Program;
using support::Code;

bool is_counted(const Instruction& in) { return in.opcode == Opcode::kAllToAll && in.row_bytes > 0; }

}  // namespace

Exchanges::Exchanges(const plan::Plan& plan, Effects& effects, const Accounts& accounts, Findings& findings)
    : plan_(plan), effects_(effects), findings_(findings) {
  for (size_t p = 0; p < plan.programs.size(); p++) {
    origins_.emplace_back(plan.programs[p].instructions.size());
    const std::vector<int>& ranks = accounts.ranks(static_cast<int>(p));
    const bool any = std::any_of(plan.programs[p].instructions.begin(), plan.programs[p].instructions.end(), is_counted);
    if (any && !ranks.empty()) follow(static_cast<int>(p), ranks.front());
  }
}

void Exchanges::follow(int p, int rank) {
  const Program& program = plan_.programs[p];
  std::vector<int> writer(program.buffers.size(), -1);      // of each buffer, the last
  std::vector<Origin> content(program.buffers.size());
  for (size_t i = 0; i < program.instructions.size(); i++) {
    const Instruction& in = program.instructions[i];
    Origin& origin = origins_[p][i];
    if (is_counted(in)) {
      if (check(p, rank, static_cast<int>(i), writer)) {
        const int64_t members = static_cast<int64_t>(plan_.groups[plan_.ranks[rank].groups[in.group]].ranks.size());
        origin = {static_cast<int>(i), in.ranges[3].fixed / 8 / members};
      }
    } else if (in.opcode == Opcode::kCompute) {
      for (const Effect& e : effects_.of(rank, in)) {
        const plan::Buffer& buffer = program.buffers[in.ranges[e.range].buffer];
        const Origin& read = content[in.ranges[e.range].buffer];
        if (e.access == plan::Access::kRead && !buffer.persistent && read.instruction >= 0) origin = read;
      }
    }
    for (const plan::BufferRange& range : in.ranges) {
      if (range.access == plan::Access::kRead) continue;
      writer[range.buffer] = static_cast<int>(i);
      content[range.buffer] = origin;
    }
  }
}

// Whether the all-to-all brings rows from others; else it takes them back.
bool Exchanges::check(int p, int rank, int i, const std::vector<int>& writer) {
  const Program& program = plan_.programs[p];
  const Instruction& in = program.instructions[i];
  // Of the two tables of counts, an all-to-all has made one from the other.
  for (const bool there : {true, false}) {
    const plan::BufferRange &given = in.ranges[there ? 2 : 3], &got = in.ranges[there ? 3 : 2];
    const int told = writer[got.buffer];
    if (told < 0) continue;
    const Instruction& tell = program.instructions[told];
    const bool same = tell.opcode == Opcode::kAllToAll && tell.row_bytes == 0 && tell.group == in.group &&
                      tell.microbatch == in.microbatch && tell.ranges[0].buffer == given.buffer &&
                      tell.ranges[0].offset == given.offset && tell.ranges[0].fixed == given.fixed &&
                      tell.ranges[1].offset == got.offset && tell.ranges[1].fixed == got.fixed && writer[given.buffer] < told;
    if (!same) continue;
    const auto waited = std::find_if(program.instructions.begin() + told, program.instructions.begin() + i, [&](const Instruction& w) {
      return w.opcode == Opcode::kWaitHost && w.ranges[0].buffer == got.buffer && w.ranges[0].fixed == got.fixed && w.stream == in.stream;
    });
    if (waited == program.instructions.begin() + i) {
      findings_.add(Code::E0607, rank, i, findings_.name(rank, i) + " moves rows whose counts the host has not read");
      return there;
    }
    // With it the size of a row is known: the room for all that may come is this range.
    const plan::BufferRange& room = in.ranges[there ? 1 : 0];
    if (room.per_sample != 0 || room.fixed / in.row_bytes != waited->limit) {
      findings_.add(Code::E0607, rank, i, fmt::format("{} has other room than for the {} rows that the host lets pass",
                                                      findings_.name(rank, i), waited->limit));
    }
    return there;
  }
  findings_.add(Code::E0607, rank, i, findings_.name(rank, i) + " moves rows by counts that the members did not tell each other");
  return false;
}

}  // namespace piper::verify
