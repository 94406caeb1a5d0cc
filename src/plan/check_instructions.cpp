// Rules of instructions and kernel lists.
#include <algorithm>

#include "plan/check_rules.h"

namespace piper::plan::rules {

namespace {

// What an opcode does to its ranges, which is what they have to declare.
struct OpcodeRule {
  Opcode opcode;
  std::vector<Access> ranges;
  bool peer = false;
  bool group = false;
};

const OpcodeRule* rule_of(Opcode opcode) {
  using enum Access;
  static const std::vector<OpcodeRule> rules = {
      {Opcode::kSend, {kRead}, true},
      {Opcode::kRecv, {kWrite}, true},
      {Opcode::kAllReduce, {kReadWrite}, false, true},
      {Opcode::kReduceScatter, {kRead, kWrite}, false, true},
      {Opcode::kAllGather, {kRead, kWrite}, false, true},
      {Opcode::kAllToAll, {kRead, kWrite, kRead, kRead}, false, true},
      {Opcode::kBroadcast, {kReadWrite}, false, true},
      {Opcode::kZero, {kWrite}},
      {Opcode::kCopy, {kRead, kWrite}},
      {Opcode::kAdd, {kRead, kReadWrite}},
      {Opcode::kLoadBatch, {kWrite}},
      {Opcode::kWaitHost, {kRead}},
  };
  auto it = std::find_if(rules.begin(), rules.end(), [&](const OpcodeRule& rule) { return rule.opcode == opcode; });
  return it == rules.end() ? nullptr : &*it;
}

bool writes(Access access) { return access != Access::kRead; }

void require_access(const Instruction& instruction, size_t range, Access needed, Reporter& report) {
  report.require(instruction.ranges[range].access == needed,
                 opcode_name(instruction.opcode) + " declares a wrong access to range " + std::to_string(range));
}

// Norms and updates find the norm at the beginning of the statistics.
bool is_stats(const Program& program, const BufferRange& range) {
  return range.buffer == program.stats_buffer && range.offset == 0 && range.fixed >= 16;
}

void check_compute(const Plan& plan, const Instruction& instruction, Reporter& report) {
  if (!report.require(valid_index(instruction.chunk, plan.chunks), "its chunk does not exist")) return;
  const Chunk& chunk = plan.chunks[instruction.chunk];
  if (!report.require(instruction.ranges.size() == chunk.slots.size(),
                      "it binds " + std::to_string(instruction.ranges.size()) + " ranges to the " +
                          std::to_string(chunk.slots.size()) + " slots of chunk `" + chunk.name + "`")) {
    return;
  }
  for (size_t i = 0; i < chunk.slots.size(); i++) require_access(instruction, i, chunk.slots[i].access, report);
}

void check_norm(const Program& program, const Instruction& instruction, Reporter& report) {
  size_t n = instruction.ranges.size();
  if (!report.require(n >= 1 && is_stats(program, instruction.ranges[n - 1]), "the last range of norm is not the statistics")) {
    return;
  }
  for (size_t i = 0; i + 1 < n; i++) require_access(instruction, i, Access::kRead, report);
  require_access(instruction, n - 1, Access::kReadWrite, report);
}

size_t optimizer_states(const OptimizerConfig& optimizer) {
  if (optimizer.kind != OptimizerKind::kSgd) return 2;
  return optimizer.momentum != 0 ? 1 : 0;
}

void check_update(const Plan& plan, const Program& program, const Instruction& instruction, Reporter& report) {
  if (!report.require(valid_index(instruction.update, plan.updates), "its update does not exist")) return;
  const Update& update = plan.updates[instruction.update];
  size_t states = update.statistics ? 0 : optimizer_states(plan.optimizer);
  size_t n = instruction.ranges.size();
  if (!report.require(n == 3 + states, "update has " + std::to_string(n) + " ranges, " +
                                           (update.statistics ? "one of statistics has " : "the optimizer asks for ") +
                                           std::to_string(3 + states))) {
    return;
  }
  require_access(instruction, 0, Access::kReadWrite, report);
  require_access(instruction, 1, Access::kRead, report);
  for (size_t i = 2; i + 1 < n; i++) require_access(instruction, i, Access::kReadWrite, report);
  require_access(instruction, n - 1, Access::kRead, report);
  report.require(is_stats(program, instruction.ranges[n - 1]), "the last range of update is not the statistics");
  for (size_t i = 0; i + 1 < n; i++) {
    const BufferRange& range = instruction.ranges[i];
    report.require(range.per_sample == 0, "a range of update depends on the samples");
    report.require(range.fixed == instruction.ranges[0].fixed, "the ranges of update differ in size");
  }
  report.require(instruction.segment >= 0 || update.runs.empty() || update.runs.back().end * int64_t{4} <= instruction.ranges[0].fixed,
                 "the runs of update `" + update.name + "` are outside its bucket");
}

// Numbers of rows, and rows that are whole.
void check_counts(const Program& program, const Instruction& instruction, Reporter& report) {
  const std::string name = opcode_name(instruction.opcode);
  const bool rows = instruction.opcode == Opcode::kAllToAll;
  report.require(instruction.row_bytes >= 0 && instruction.row_bytes <= kMaxBytes && instruction.limit >= 0 &&
                     instruction.limit <= kMaxBytes,
                 name + " of rows of impossible size or number");
  for (size_t i = 0; i < instruction.ranges.size(); i++) {
    const BufferRange& range = instruction.ranges[i];
    if (rows && i < 2) {
      report.require(range.fixed % instruction.row_bytes == 0 && range.per_sample % instruction.row_bytes == 0,
                     name + " of a range that is no whole number of rows");
    } else {
      report.require(program.buffers[range.buffer].dtype == DType::kI64 && range.per_sample == 0 && range.fixed % 8 == 0,
                     name + " with counts that are no i64 numbers");
    }
  }
}

void check_by_rule(const Plan& plan, const Program& program, const Instruction& instruction, const OpcodeRule& rule,
                   Reporter& report) {
  std::string name = opcode_name(instruction.opcode);
  // An all_to_all without counts has the first two of its ranges only.
  const bool equal_parts = instruction.opcode == Opcode::kAllToAll && instruction.row_bytes == 0;
  const size_t ranges = equal_parts ? 2 : rule.ranges.size();
  if (!report.require(instruction.ranges.size() == ranges, name + " has " + std::to_string(instruction.ranges.size()) +
                                                               " ranges instead of " + std::to_string(ranges))) {
    return;
  }
  for (size_t i = 0; i < ranges; i++) require_access(instruction, i, rule.ranges[i], report);
  if (rule.peer) report.require(instruction.peer >= 0, name + " has no peer");
  if (rule.group) report.require(instruction.group >= 0, name + " has no group");
  bool reduces = instruction.opcode == Opcode::kAllReduce || instruction.opcode == Opcode::kReduceScatter;
  if (reduces) {
    report.require(instruction.dtype == DType::kF32 || instruction.dtype == DType::kF64, name + " of no f32 or f64");
    for (const BufferRange& range : instruction.ranges) {
      const Buffer& buffer = program.buffers[range.buffer];
      report.require(buffer.dtype == instruction.dtype, name + " as " + std::string(ir::dtype_name(instruction.dtype)) +
                                                            " of buffer `" + buffer.name + "`, which has another type");
    }
  }
  if (ranges == 4 || instruction.opcode == Opcode::kWaitHost) check_counts(program, instruction, report);
  if (instruction.opcode == Opcode::kCopy || instruction.opcode == Opcode::kAdd) {
    report.require(instruction.ranges[0].fixed == instruction.ranges[1].fixed &&
                       instruction.ranges[0].per_sample == instruction.ranges[1].per_sample,
                   name + " has ranges of different sizes");
  }
  if (instruction.opcode == Opcode::kAdd) {
    for (const BufferRange& range : instruction.ranges) {
      report.require(program.buffers[range.buffer].dtype == DType::kF32, "add of buffer `" + program.buffers[range.buffer].name + "`, which is no f32");
    }
  }
  if (instruction.opcode == Opcode::kLoadBatch) {
    report.require(valid_index(instruction.input, plan.inputs), "its input does not exist");
    report.require(instruction.share >= 0 && instruction.microbatch >= 0, "load_batch does not say which samples");
  }
}

// Indices common to all opcodes; false when the ranges must not be followed.
bool check_indices(const Plan& plan, const Program& program, size_t index, Reporter& report) {
  const Instruction& in = program.instructions[index];
  report.require(valid_index(in.stream, program.streams), "its stream does not exist");
  for (int32_t wait : in.waits) {
    report.require(wait >= 0 && static_cast<size_t>(wait) < index, "it waits for instruction " + std::to_string(wait) +
                                                                       ", which is not an earlier one");
  }
  report.require(in.microbatch >= -1 && in.microbatch < plan.microbatches, "its microbatch does not exist");
  report.require(in.share >= -1 && (in.share < 0 || in.microbatch >= 0), "it has a share but no microbatch");
  report.require(in.source == -1 || valid_index(in.source, plan.sources), "its source does not exist");
  report.require(in.peer >= -1 && in.group >= -1 && in.piece >= -1 && in.segment >= -1, "a negative index");
  bool point_to_point = in.opcode == Opcode::kSend || in.opcode == Opcode::kRecv;
  report.require(in.piece < 0 || point_to_point, "only send and recv may have a piece");
  bool sound = true;
  for (const BufferRange& range : in.ranges) {
    sound = report.require(valid_index(range.buffer, program.buffers), "the buffer of a range does not exist") && sound;
    bool sized = range.offset >= 0 && range.fixed >= 0 && range.per_sample >= 0 && range.offset <= kMaxBytes &&
                 range.fixed <= kMaxBytes && range.per_sample <= kMaxBytes;
    sound = report.require(sized, "a range of impossible size") && sound;
    report.require(range.per_sample == 0 || in.share >= 0 || in.piece >= 0,
                   "the size of a range depends on samples, but the instruction does not say which");
  }
  return sound;
}

void check_operand(const Chunk& chunk, const KernelList& variant, const Operand& operand, bool output, Reporter& report) {
  if (operand.slot == -1) return;
  if (!report.require(valid_index(operand.slot, chunk.slots), "chunk `" + chunk.name + "` uses a slot that it lacks")) return;
  const Slot& slot = chunk.slots[operand.slot];
  int64_t bytes = tensor_bytes(operand.dtype, operand.shape);
  bool inside = bytes >= 0 && operand.offset >= 0 && operand.offset <= kMaxBytes &&
                operand.offset + bytes <= variant.slot_bytes[operand.slot];
  report.require(inside, "chunk `" + chunk.name + "` uses bytes outside its slot `" + slot.name + "`");
  if (output) {
    report.require(writes(slot.access), "chunk `" + chunk.name + "` writes its read-only slot `" +
                                                              slot.name + "`");
  }
}

}  // namespace

void check_chunk(const Plan& plan, size_t index, Reporter& report) {
  const Chunk& chunk = plan.chunks[index];
  report.at(-1, -1, -1);
  report.require(!chunk.variants.empty(), "chunk `" + chunk.name + "` has no kernels");
  for (size_t v = 0; v < chunk.variants.size(); v++) {
    const KernelList& variant = chunk.variants[v];
    bool ascending = variant.samples >= 0 && (v == 0 || chunk.variants[v - 1].samples < variant.samples);
    report.require(ascending, "the variants of chunk `" + chunk.name + "` are not ascending");
    if (!report.require(variant.slot_bytes.size() == chunk.slots.size(),
                        "a variant of chunk `" + chunk.name + "` does not size every slot")) {
      continue;
    }
    for (int64_t bytes : variant.slot_bytes) {
      report.require(bytes >= 0 && bytes <= kMaxBytes, "a slot of chunk `" + chunk.name + "` has an impossible size");
    }
    for (const KernelCall& call : variant.calls) {
      for (const Operand& input : call.inputs) check_operand(chunk, variant, input, false, report);
      for (const Operand& output : call.outputs) check_operand(chunk, variant, output, true, report);
    }
  }
}

void check_instructions(const Plan& plan, int p, Reporter& report) {
  const Program& program = plan.programs[p];
  for (size_t i = 0; i < program.instructions.size() && !report.full(); i++) {
    const Instruction& instruction = program.instructions[i];
    report.at(p, -1, static_cast<int>(i));
    if (!check_indices(plan, program, i, report)) continue;
    if (instruction.opcode == Opcode::kCompute) {
      check_compute(plan, instruction, report);
    } else if (instruction.opcode == Opcode::kNorm) {
      check_norm(program, instruction, report);
    } else if (instruction.opcode == Opcode::kUpdate) {
      check_update(plan, program, instruction, report);
    } else {
      check_by_rule(plan, program, instruction, *rule_of(instruction.opcode), report);
    }
  }
}

namespace {

// Bytes that `range` spans for `samples`, or -1 beyond any machine.
int64_t extent(const BufferRange& range, int64_t samples) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(range.per_sample, samples, &bytes) || bytes > kMaxBytes) return -1;
  return range.fixed + bytes;
}

// The kernels of the instruction for so many samples fit the ranges that it binds.
void check_variant(const Chunk& chunk, const Instruction& instruction, int64_t samples, Reporter& report) {
  const KernelList* found = nullptr;
  for (const KernelList& variant : chunk.variants) {
    if (variant.samples == samples) found = &variant;
  }
  if (!found && chunk.variants.size() == 1 && chunk.variants[0].samples == 0) found = &chunk.variants[0];
  if (!report.require(found, "chunk `" + chunk.name + "` has no kernels for " + std::to_string(samples) + " samples")) return;
  for (size_t i = 0; i < instruction.ranges.size(); i++) {
    report.require(found->slot_bytes[i] <= extent(instruction.ranges[i], samples),
                   "range " + std::to_string(i) + " is smaller than slot `" + chunk.slots[i].name + "` of chunk `" +
                       chunk.name + "`");
  }
}

}  // namespace

void check_sizes(const Plan& plan, int p, const ProgramSizes& sizes, Reporter& report) {
  const Program& program = plan.programs[p];
  const std::set<int64_t> fixed = {0};
  for (size_t i = 0; i < program.instructions.size() && !report.full(); i++) {
    const Instruction& instruction = program.instructions[i];
    report.at(p, -1, static_cast<int>(i));
    // A program that no rank runs has no sizes.
    if (instruction.share >= 0 && static_cast<size_t>(instruction.share) >= sizes.counts.size()) continue;
    if (instruction.piece >= 0 && static_cast<size_t>(instruction.piece) >= sizes.piece_ends.size()) continue;
    const std::set<int64_t>& counts =
        instruction.share < 0 ? fixed : sizes.counts[instruction.share][instruction.microbatch];
    if (counts.empty()) continue;
    int64_t most = instruction.piece < 0 ? *counts.rbegin() : sizes.piece_ends[instruction.piece];
    for (const BufferRange& range : instruction.ranges) {
      const Buffer& buffer = program.buffers[range.buffer];
      int64_t bytes = extent(range, most);
      report.require(bytes >= 0 && range.offset + bytes <= buffer.bytes, "a range is outside buffer `" + buffer.name + "`");
    }
    if (instruction.opcode == Opcode::kCompute) {
      for (int64_t samples : counts) check_variant(plan.chunks[instruction.chunk], instruction, samples, report);
    }
    if (instruction.opcode == Opcode::kLoadBatch) {
      const Input& input = plan.inputs[instruction.input];
      int64_t sample = tensor_bytes(input.dtype, input.sample_shape);
      for (int64_t samples : counts) {
        // Divided, because the product may overflow.
        report.require(samples == 0 || extent(instruction.ranges[0], samples) / samples >= sample,
                       "the range is smaller than its samples of input `" + input.name + "`");
      }
    }
  }
}

}  // namespace piper::plan::rules
