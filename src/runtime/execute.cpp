// What instructions do. Runs on the streams' threads; allocates nothing unless it fails.
#include <cstring>

#include "ops/update.h"
#include "runtime/executor.h"

namespace piper::runtime {

using plan::Opcode;
using support::Expected;

namespace {

// Messages of a step never meet those of another.
uint64_t tag_of(const BoundInstruction& instruction, int64_t step) {
  return static_cast<uint64_t>(step) << 32 | instruction.tag;
}

size_t elements_of(const BoundRange& range, ir::DType dtype) {
  return range.bytes / static_cast<size_t>(ir::dtype_size(dtype));
}

void add(const BoundRange& from, const BoundRange& to) {
  const float* in = reinterpret_cast<const float*>(from.data);
  float* out = reinterpret_cast<float*>(to.data);
  const size_t elements = elements_of(from, ir::DType::kF32);
  for (size_t i = 0; i < elements; i++) out[i] += in[i];
}

}  // namespace

Expected<void> Executor::execute(const BoundInstruction& instruction, const BoundStream& stream) {
  const BoundRange* ranges = bound_.ranges.data() + instruction.first_range;
  switch (instruction.opcode) {
    case Opcode::kCompute: compute(instruction, stream); return {};
    case Opcode::kSend:
    case Opcode::kRecv:
    case Opcode::kAllReduce:
    case Opcode::kReduceScatter:
    case Opcode::kAllGather:
    case Opcode::kAllToAll:
    case Opcode::kBroadcast: return communicate(instruction);
    case Opcode::kZero: std::memset(ranges[0].data, 0, ranges[0].bytes); return {};
    case Opcode::kCopy: std::memcpy(ranges[1].data, ranges[0].data, ranges[0].bytes); return {};
    case Opcode::kLoadBatch:
      return data_.fill(instruction.input, context_.step, instruction.sample_start, instruction.sample_count,
                        ranges[0].data);
    case Opcode::kNorm: add_norm(instruction); return {};
    case Opcode::kUpdate: return update(instruction);
    case Opcode::kAdd: add(ranges[0], ranges[1]); return {};
  }
  return {};
}

Expected<void> Executor::communicate(const BoundInstruction& in) {
  const BoundRange* ranges = bound_.ranges.data() + in.first_range;
  const uint64_t tag = tag_of(in, context_.step);
  switch (in.opcode) {
    case Opcode::kSend: return transport_.send(in.peer, tag, ranges[0].data, ranges[0].bytes);
    case Opcode::kRecv: return transport_.recv(in.peer, tag, ranges[0].data, ranges[0].bytes);
    case Opcode::kAllReduce:
      return transport_.all_reduce(in.group, tag, ranges[0].data, elements_of(ranges[0], in.dtype), in.dtype);
    case Opcode::kReduceScatter:
      return transport_.reduce_scatter(in.group, tag, ranges[0].data, ranges[1].data, elements_of(ranges[1], in.dtype),
                                       in.dtype);
    case Opcode::kAllGather:
      return transport_.all_gather(in.group, tag, ranges[0].data, ranges[1].data, ranges[0].bytes);
    case Opcode::kBroadcast: return transport_.broadcast(in.group, tag, ranges[0].data, ranges[0].bytes, 0);
    default: return support::user_error("this build cannot run " + plan::opcode_name(in.opcode));
  }
}

void Executor::compute(const BoundInstruction& instruction, const BoundStream& stream) {
  const ops::RunContext context{plan_.seed, context_.step, instruction.sample_start, stream.scratch.data()};
  void* const* pointers = bound_.pointers.data();
  for (uint32_t c = instruction.first_call; c < instruction.end_call; c++) {
    const BoundCall& call = bound_.calls[c];
    call.kernel->run(pointers + call.in, pointers + call.out, context);
  }
}

void Executor::add_norm(const BoundInstruction& instruction) {
  double* stats = reinterpret_cast<double*>(bound_.ranges[instruction.end_range - 1].data);
  for (uint32_t r = instruction.first_range; r + 1 < instruction.end_range; r++) {
    const BoundRange& range = bound_.ranges[r];
    double sum = 0, nonfinite = 0;
    ops::sum_of_squares(reinterpret_cast<const float*>(range.data), static_cast<int64_t>(range.bytes / sizeof(float)),
                        &sum, &nonfinite);
    stats[0] += instruction.scale * sum;
    stats[1] += instruction.scale * nonfinite;
  }
}

Expected<void> Executor::update(const BoundInstruction& instruction) {
  const std::span<const BoundRange> ranges(bound_.ranges.data() + instruction.first_range,
                                           instruction.end_range - instruction.first_range);
  const StepDecision decision = apply_update(plan_, instruction.update, ranges, instruction.segment_start, context_);
  if (decision.verdict == Verdict::kStop) {
    return support::user_error("the gradients of step " + std::to_string(context_.step) + " are not finite",
                               "with `on_nonfinite skip` training would go on without this step");
  }
  return {};
}

}  // namespace piper::runtime
