// Names of ranks and instructions for people.
#include <fmt/format.h>

#include "plan/show.h"

namespace piper::plan {

namespace {

std::string of_microbatch(const Instruction& instruction) {
  return instruction.microbatch < 0 ? "" : fmt::format(" of microbatch {}", instruction.microbatch);
}

std::string tensor_or(const Instruction& instruction, const char* otherwise) {
  return instruction.tensor.empty() ? otherwise : "`" + instruction.tensor + "`";
}

std::string collective_text(const Plan& plan, const RankEntry& rank, const Instruction& instruction) {
  const Group& group = plan.groups[rank.groups[instruction.group]];
  return fmt::format("{} {}{} as {} over `{}` of ranks {} (tag {})", opcode_name(instruction.opcode),
                     tensor_or(instruction, "bytes"), of_microbatch(instruction), ir::dtype_name(instruction.dtype),
                     group.name, ranks_text({group.ranks.begin(), group.ranks.end()}), instruction.tag);
}

}  // namespace

std::string ranks_text(const std::vector<int>& ascending) {
  std::string text;
  for (size_t i = 0; i < ascending.size();) {
    size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) last++;
    if (!text.empty()) text += ", ";
    text += std::to_string(ascending[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ascending[last]);
    i = last + 1;
  }
  return text;
}

std::string action_text(const Plan& plan, int r, const Instruction& instruction) {
  const RankEntry& rank = plan.ranks[r];
  switch (instruction.opcode) {
    case Opcode::kCompute:
      return fmt::format("compute `{}`{}", plan.chunks[instruction.chunk].name, of_microbatch(instruction));
    case Opcode::kSend:
      return fmt::format("send {}{} to rank {} (tag {})", tensor_or(instruction, "bytes"), of_microbatch(instruction),
                         rank.peers[instruction.peer], instruction.tag);
    case Opcode::kRecv:
      return fmt::format("recv {}{} from rank {} (tag {})", tensor_or(instruction, "bytes"), of_microbatch(instruction),
                         rank.peers[instruction.peer], instruction.tag);
    case Opcode::kAllReduce:
    case Opcode::kReduceScatter:
    case Opcode::kAllGather:
    case Opcode::kBroadcast: return collective_text(plan, rank, instruction);
    case Opcode::kAllToAll:
      return collective_text(plan, rank, instruction) +
             (instruction.row_bytes > 0 ? fmt::format(", counted rows of {} bytes", instruction.row_bytes) : "");
    case Opcode::kWaitHost:
      return fmt::format("wait_host {}{}, at most {} rows", tensor_or(instruction, "counts"), of_microbatch(instruction), instruction.limit);
    case Opcode::kLoadBatch:
      return fmt::format("load_batch `{}`{}", plan.inputs[instruction.input].name, of_microbatch(instruction));
    case Opcode::kUpdate: return fmt::format("update `{}`", plan.updates[instruction.update].name);
    case Opcode::kZero:
    case Opcode::kCopy:
    case Opcode::kAdd:
    case Opcode::kNorm: break;
  }
  std::string text = opcode_name(instruction.opcode);
  if (!instruction.tensor.empty()) text += " `" + instruction.tensor + "`";
  return text + of_microbatch(instruction);
}

std::string instruction_text(const Plan& plan, int rank, int index) {
  const Program& program = plan.programs[plan.ranks[rank].program];
  const Instruction& instruction = program.instructions[index];
  return fmt::format("rank {}, instruction {} on `{}`: {}", rank, index, program.streams[instruction.stream].name,
                     action_text(plan, rank, instruction));
}

}  // namespace piper::plan
