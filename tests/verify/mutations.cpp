#include "tests/verify/mutations.h"

#include <algorithm>

#include "plan/show.h"

namespace piper::testing {

namespace {

using namespace plan;  // NOLINT: a test helper that is all about plans
using Rng = std::mt19937_64;

template <class T>
size_t any_of(const std::vector<T>& list, Rng& rng) {
  return rng() % list.size();
}

Program& any_program(Plan& plan, Rng& rng) { return plan.programs[any_of(plan.programs, rng)]; }

std::string describe(const Plan& plan, const Program& program, size_t i) {
  for (size_t r = 0; r < plan.ranks.size(); r++) {
    if (&plan.programs[plan.ranks[r].program] == &program) return instruction_text(plan, static_cast<int>(r), static_cast<int>(i));
  }
  return "";
}

// A random instruction for which `fits` holds, or -1.
template <class Fits>
int any_instruction(const Program& program, Rng& rng, Fits fits) {
  std::vector<int> found;
  for (size_t i = 0; i < program.instructions.size(); i++) {
    if (fits(program.instructions[i])) found.push_back(static_cast<int>(i));
  }
  return found.empty() ? -1 : found[any_of(found, rng)];
}

// Renumbers waits after instructions moved; -1 drops a wait.
void renumber(Program& program, const std::vector<int>& to) {
  for (Instruction& instruction : program.instructions) {
    for (int32_t& wait : instruction.waits) wait = to[wait];
    std::erase(instruction.waits, -1);
  }
}

std::string drop(Plan& plan, Rng& rng) {
  Program& program = any_program(plan, rng);
  size_t i = any_of(program.instructions, rng);
  std::string what = describe(plan, program, i);
  std::vector<int> to;
  for (size_t k = 0; k < program.instructions.size(); k++) to.push_back(static_cast<int>(k) - (k > i ? 1 : 0));
  to[i] = -1;
  renumber(program, to);
  program.instructions.erase(program.instructions.begin() + static_cast<std::ptrdiff_t>(i));
  return what;
}

std::string duplicate(Plan& plan, Rng& rng) {
  Program& program = any_program(plan, rng);
  size_t i = any_of(program.instructions, rng);
  std::string what = describe(plan, program, i);
  std::vector<int> to;
  for (size_t k = 0; k < program.instructions.size(); k++) to.push_back(static_cast<int>(k) + (k >= i ? 1 : 0));
  Instruction copy = program.instructions[i];
  renumber(program, to);
  program.instructions.insert(program.instructions.begin() + static_cast<std::ptrdiff_t>(i), copy);
  return what;
}

std::string swap(Plan& plan, Rng& rng) {
  Program& program = any_program(plan, rng);
  if (program.instructions.size() < 2) return "";
  size_t i = rng() % (program.instructions.size() - 1), j = i + 1;
  // Half of the time two of one stream, with what lies between them left in place.
  if (rng() % 2 == 0) {
    while (j + 1 < program.instructions.size() && program.instructions[j].stream != program.instructions[i].stream) j++;
  }
  std::string what = describe(plan, program, i) + " and " + describe(plan, program, j);
  std::vector<int> to;
  for (size_t k = 0; k < program.instructions.size(); k++) to.push_back(static_cast<int>(k));
  std::swap(to[i], to[j]);
  renumber(program, to);
  std::swap(program.instructions[i], program.instructions[j]);
  return what;
}

// Calls `change` on a random instruction that fits.
template <class Fits, class Change>
std::string change_one(Plan& plan, Rng& rng, Fits fits, Change change) {
  Program& program = any_program(plan, rng);
  int i = any_instruction(program, rng, fits);
  if (i < 0) return "";
  std::string what = describe(plan, program, i);
  change(program, program.instructions[i]);
  return what;
}

bool is_message(const Instruction& i) { return i.opcode == Opcode::kSend || i.opcode == Opcode::kRecv; }
bool is_collective(const Instruction& i) { return i.opcode >= Opcode::kAllReduce && i.opcode <= Opcode::kBroadcast; }
bool has_ranges(const Instruction& i) { return !i.ranges.empty(); }

std::string peer(Plan& plan, Rng& rng) {
  if (plan.ranks.size() < 2) return "";
  return change_one(plan, rng, is_message, [&](Program&, Instruction& i) { i.peer += rng() % 2 == 0 ? 1 : -1; });
}

std::string rank_peer(Plan& plan, Rng& rng) {
  size_t r = any_of(plan.ranks, rng);
  if (plan.ranks[r].peers.empty()) return "";
  size_t p = any_of(plan.ranks[r].peers, rng);
  int32_t to = static_cast<int32_t>(any_of(plan.ranks, rng));
  if (plan.ranks[r].peers[p] == to) return "";
  plan.ranks[r].peers[p] = to;
  return "peer " + std::to_string(p) + " of rank " + std::to_string(r) + " becomes " + std::to_string(to);
}

std::string tag(Plan& plan, Rng& rng) {
  return change_one(plan, rng, is_message, [&](Program&, Instruction& i) { i.tag += static_cast<int32_t>(rng() % 4) + 1; });
}

std::string group(Plan& plan, Rng& rng) {
  return change_one(plan, rng, is_collective, [&](Program&, Instruction& i) { i.group += rng() % 2 == 0 ? 1 : -1; });
}

std::string group_ranks(Plan& plan, Rng& rng) {
  if (plan.groups.empty()) return "";
  Group& group = plan.groups[any_of(plan.groups, rng)];
  group.ranks.erase(group.ranks.begin() + static_cast<std::ptrdiff_t>(any_of(group.ranks, rng)));
  return "a rank leaves " + group.name;
}

std::string bytes(Plan& plan, Rng& rng) {
  return change_one(plan, rng, has_ranges, [&](Program&, Instruction& i) {
    BufferRange& range = i.ranges[any_of(i.ranges, rng)];
    int64_t& field = range.per_sample > 0 ? range.per_sample : range.fixed;
    field += (rng() % 2 == 0 ? 1 : -1) * (rng() % 2 == 0 ? 8 : 16);
  });
}

std::string offset(Plan& plan, Rng& rng) {
  return change_one(plan, rng, has_ranges, [&](Program&, Instruction& i) {
    i.ranges[any_of(i.ranges, rng)].offset += (rng() % 2 == 0 ? 1 : -1) * (rng() % 2 == 0 ? 8 : 64);
  });
}

std::string range_buffer(Plan& plan, Rng& rng) {
  return change_one(plan, rng, has_ranges, [&](Program& program, Instruction& i) {
    BufferRange& range = i.ranges[any_of(i.ranges, rng)];
    range.buffer = static_cast<int32_t>((range.buffer + 1 + rng() % (program.buffers.size() - 1)) % program.buffers.size());
  });
}

std::string range_access(Plan& plan, Rng& rng) {
  return change_one(plan, rng, has_ranges, [&](Program&, Instruction& i) {
    BufferRange& range = i.ranges[any_of(i.ranges, rng)];
    range.access = static_cast<Access>(1 + (static_cast<uint64_t>(range.access) + rng() % 2) % 3);
  });
}

std::string buffer_place(Plan& plan, Rng& rng) {
  Program& program = any_program(plan, rng);
  Buffer& buffer = program.buffers[any_of(program.buffers, rng)];
  const Buffer& other = program.buffers[any_of(program.buffers, rng)];
  if (buffer.offset == other.offset) return "";
  buffer.offset = other.offset;
  return "buffer " + buffer.name + " of " + program.name + " moves onto " + other.name;
}

std::string wait(Plan& plan, Rng& rng) {
  return change_one(plan, rng, [](const Instruction& i) { return !i.waits.empty(); },
                    [&](Program&, Instruction& i) { i.waits.erase(i.waits.begin() + static_cast<std::ptrdiff_t>(any_of(i.waits, rng))); });
}

std::string stream(Plan& plan, Rng& rng) {
  return change_one(plan, rng, has_ranges, [&](Program& program, Instruction& i) {
    i.stream = static_cast<int32_t>((i.stream + 1 + rng() % (program.streams.size() - 1)) % program.streams.size());
  });
}

std::string microbatch(Plan& plan, Rng& rng) {
  if (plan.microbatches < 2) return "";
  return change_one(plan, rng, [](const Instruction& i) { return i.microbatch >= 0; }, [&](Program&, Instruction& i) {
    i.microbatch = static_cast<int32_t>((i.microbatch + 1 + rng() % (plan.microbatches - 1)) % plan.microbatches);
  });
}

std::string chunk(Plan& plan, Rng& rng) {
  return change_one(plan, rng, [](const Instruction& i) { return i.opcode == Opcode::kCompute; }, [&](Program&, Instruction& i) {
    i.chunk = static_cast<int32_t>((i.chunk + 1 + rng() % (plan.chunks.size() - 1)) % plan.chunks.size());
  });
}

std::string tensor(Plan& plan, Rng& rng) {
  return change_one(plan, rng, [](const Instruction& i) { return !i.tensor.empty(); }, [](Program&, Instruction& i) { i.tensor += "'"; });
}

std::string dtype(Plan& plan, Rng& rng) {
  return change_one(plan, rng, [](const Instruction& i) { return is_message(i) || is_collective(i); }, [](Program&, Instruction& i) {
    i.dtype = i.dtype == DType::kF32 ? DType::kF64 : DType::kF32;
  });
}

std::string collective(Plan& plan, Rng& rng) {
  return change_one(plan, rng, is_collective, [](Program&, Instruction& i) { i.opcode = Opcode::kBroadcast; });
}

std::string piece(Plan& plan, Rng& rng) {
  size_t r = any_of(plan.ranks, rng);
  if (plan.ranks[r].pieces.empty()) return "";
  Piece& piece = plan.ranks[r].pieces[any_of(plan.ranks[r].pieces, rng)];
  (rng() % 2 == 0 ? piece.offset : piece.count) += rng() % 2 == 0 ? 1 : -1;
  return "a piece of rank " + std::to_string(r);
}

std::string share(Plan& plan, Rng& rng) {
  RankEntry& rank = plan.ranks[any_of(plan.ranks, rng)];
  Share& share = rank.shares[0][any_of(rank.shares[0], rng)];
  (rng() % 2 == 0 ? share.start : share.count) += rng() % 2 == 0 ? 1 : -1;
  return "a share";
}

std::string update(Plan& plan, Rng& rng) {
  Update& update = plan.updates[any_of(plan.updates, rng)];
  UpdateRun& run = update.runs[any_of(update.runs, rng)];
  (rng() % 2 == 0 ? run.begin : run.end) += rng() % 2 == 0 ? 1 : -1;
  return "a run of update " + update.name;
}

}  // namespace

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all = {
      {"drop", drop},       {"duplicate", duplicate}, {"swap", swap},           {"peer", peer},
      {"peer of a rank", rank_peer}, {"tag", tag},    {"group", group},         {"group's ranks", group_ranks},
      {"bytes", bytes},     {"offset", offset},       {"buffer", range_buffer}, {"access", range_access},
      {"buffer's place", buffer_place}, {"wait", wait}, {"stream", stream},     {"microbatch", microbatch},
      {"chunk", chunk},     {"tensor", tensor},       {"dtype", dtype},         {"opcode", collective},
      {"piece", piece},     {"share", share},         {"update", update},
  };
  return all;
}

}  // namespace piper::testing
