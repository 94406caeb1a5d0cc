// A plan as text, like a disassembler. Plans may come from strangers, so control characters in names are replaced.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace piper::plan {

// Header, tables and every program; deterministic, used by golden tests.
std::string show(const Plan& plan);
// Peak memory per rank class by kind of buffer.
std::string show_memory(const Plan& plan);
// Header, programs and memory for other programs to read.
std::string show_json(const Plan& plan);

// What an instruction of a rank does, without its index and ranges: "send `h` of microbatch 1 to rank 2 (tag 5)".
std::string action_text(const Plan& plan, int rank, const Instruction& instruction);
// "rank 0, instruction 12 on `compute`: send `h` of ..."
std::string instruction_text(const Plan& plan, int rank, int index);
// "0-3, 8, 10"
std::string ranks_text(const std::vector<int>& ascending);

inline constexpr size_t kBufferKinds = static_cast<size_t>(BufferKind::kStats) + 1;

// Bytes of a program's buffers by kind, at the moment when most are in use. Buffers that do not persist count from the
// first instruction that touches them to the last, in issue order.
struct MemoryPeak {
  std::array<int64_t, kBufferKinds> by_kind = {};
  int64_t total = 0;
  int instruction = -1;  // first at which the peak is reached; -1: a program without instructions
};
MemoryPeak memory_peak(const Program& program);

}  // namespace piper::plan
