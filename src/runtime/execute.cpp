// What instructions do. Runs on the streams' threads; allocates nothing unless it fails.
#include <fmt/format.h>
#include <fmt/ranges.h>

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

int64_t sum_of(const int64_t* counts, size_t n) {
  int64_t sum = 0;
  for (size_t i = 0; i < n; i++) sum += counts[i];
  return sum;
}

std::span<const int64_t> counts_in(const BoundRange& range) {
  return {reinterpret_cast<const int64_t*>(range.data), range.bytes / sizeof(int64_t)};
}

// Bytes for each member of rows that counts say the numbers of: equally many counts a member.
Expected<size_t> bytes_of_members(std::span<const int64_t> counts, const BoundInstruction& in, const BoundRange& room,
                                  size_t* bytes) {
  const size_t each = counts.size() / in.members;
  size_t total = 0;
  for (uint32_t m = 0; m < in.members; m++) {
    const int64_t rows = sum_of(counts.data() + m * each, each);
    bytes[m] = static_cast<size_t>(rows) * in.row_bytes;
    total += bytes[m];
    if (rows < 0 || total > room.bytes) {
      return support::user_error(fmt::format("{} rows of {} bytes do not fit {} bytes", sum_of(counts.data(), counts.size()),
                                             in.row_bytes, room.bytes));
    }
  }
  return total;
}

Expected<void> all_to_all(Transport& transport, const BoundInstruction& in, const BoundRange* ranges, uint64_t tag) {
  // Kept by each thread, so that only the first step allocates.
  thread_local std::vector<size_t> sent, received;
  sent.assign(in.members, ranges[0].bytes / in.members);
  received = sent;
  size_t total = ranges[1].bytes;
  if (in.row_bytes > 0) {
    auto out = bytes_of_members(counts_in(ranges[2]), in, ranges[0], sent.data());
    if (!out) return tl::make_unexpected(out.error());
    auto into = bytes_of_members(counts_in(ranges[3]), in, ranges[1], received.data());
    if (!into) return tl::make_unexpected(into.error());
    total = *into;
  }
  auto done = transport.all_to_all(in.group, tag, ranges[0].data, sent.data(), ranges[1].data, received.data());
  std::memset(ranges[1].data + total, 0, ranges[1].bytes - total);
  return done;
}

Expected<void> check_counts(const BoundInstruction& in, const BoundRange& range) {
  const std::span<const int64_t> counts = counts_in(range);
  const int64_t sum = sum_of(counts.data(), counts.size());
  if (sum <= in.limit) return {};
  return support::user_error(fmt::format("{} rows come to this rank, the plan has room for {}; the counts are {}", sum,
                                         in.limit, fmt::join(counts, ", ")),
                             "allow more when compiling the plan (`max_load`)");
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
    case Opcode::kWaitHost: return check_counts(instruction, ranges[0]);
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
    case Opcode::kAllToAll: return all_to_all(transport_, in, ranges, tag);
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
