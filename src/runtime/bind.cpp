#include "runtime/bind.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "plan/show.h"
#include "support/strings.h"

namespace piper::runtime {

using plan::Instruction;
using plan::Opcode;
using support::Expected;
using support::user_error;

namespace {

// Kernels keep shapes, attributes and threads from when they are made: oneDNN asks OpenMP then.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ThreadsScope() { omp_set_num_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

ops::TensorDesc describe(const plan::Operand& operand) {
  return {operand.slot >= 0, operand.dtype, operand.shape};
}

// Ranks that are threads of one process make their kernels one after another: ThreadSanitizer sees oneDNN's cache of
// primitives, which they share, race when two threads fill it at once.
std::mutex making_kernels;

Expected<std::unique_ptr<ops::Kernel>> make_kernel(const plan::KernelCall& call) {
  ops::KernelSpec spec{call.op, call.attrs, {}, {}};
  for (const plan::Operand& operand : call.inputs) spec.inputs.push_back(describe(operand));
  for (const plan::Operand& operand : call.outputs) spec.outputs.push_back(describe(operand));
  std::unique_ptr<ops::Kernel> kernel;
  std::string why;
  try {
    std::lock_guard lock(making_kernels);
    kernel = ops::make_cpu_kernel(spec);
  } catch (const std::exception& exception) {
    why = std::string(": ") + exception.what();
  }
  if (kernel) return kernel;
  std::vector<std::string> types;
  for (const ops::TensorDesc& input : spec.inputs) {
    types.push_back(input.present ? std::string(ir::dtype_name(input.dtype)) + "[" +
                                        fmt::format("{}", fmt::join(input.shape, ", ")) + "]"
                                  : "-");
  }
  return user_error(fmt::format("no CPU kernel for {}({}){} at `{}`{}", call.op, support::join(types, ", "),
                                ir::to_string(call.attrs), call.path, why));
}

class Binder {
 public:
  Binder(const plan::Plan& plan, int rank, int threads)
      : plan_(plan),
        rank_(rank),
        threads_(threads),
        entry_(plan.ranks[static_cast<size_t>(rank)]),
        program_(plan.programs[static_cast<size_t>(entry_.program)]) {}

  Expected<BoundProgram> bind();

 private:
  // Kernels of one chunk and size; a kernel runs once at a time, so streams do not share them.
  using KernelKey = std::tuple<int32_t, int64_t, int32_t>;

  Expected<void> bind_instruction(const Instruction& in, int32_t index);
  void bind_waits(const Instruction& in, BoundInstruction* bound);
  Expected<void> bind_compute(const Instruction& in, BoundInstruction* bound);
  Expected<void> bind_collective(const Instruction& in, BoundInstruction* bound);
  Expected<const std::vector<ops::Kernel*>*> kernels_of(const Instruction& in, const plan::KernelList& list);
  Expected<void> allocate_scratch();
  const BoundRange& range(const BoundInstruction& bound, size_t i) const { return out_.ranges[bound.first_range + i]; }

  const plan::Plan& plan_;
  const int rank_;
  const int threads_;
  const plan::RankEntry& entry_;
  const plan::Program& program_;
  BoundProgram out_;
  std::vector<uint32_t> positions_;             // by instruction: its place in its stream
  std::vector<std::vector<uint32_t>> awaited_;  // [stream][other stream]: what earlier instructions waited for
  std::map<int32_t, uint32_t> collectives_;     // by group: how many so far
  std::map<KernelKey, std::vector<ops::Kernel*>> kernels_;
  std::vector<size_t> scratch_;  // by stream
};

Expected<BoundProgram> Binder::bind() {
  auto arena = Arena::allocate(program_.arena_bytes);
  if (!arena) return tl::make_unexpected(arena.error());
  out_.arena = std::move(*arena);
  const size_t streams = program_.streams.size();
  out_.streams.resize(streams);
  scratch_.resize(streams, 0);
  awaited_.assign(streams, std::vector<uint32_t>(streams, 0));
  for (size_t s = 0; s < streams; s++) {
    out_.streams[s].threads = program_.streams[s].kind == plan::StreamKind::kCompute ? threads_ : 1;
  }
  for (size_t i = 0; i < program_.instructions.size(); i++) {
    const Instruction& in = program_.instructions[i];
    auto bound = bind_instruction(in, static_cast<int32_t>(i));
    if (!bound) {
      support::Error error = bound.error();
      error.message = plan::instruction_text(plan_, rank_, static_cast<int>(i)) + ": " + error.message;
      return tl::make_unexpected(error);
    }
  }
  if (auto allocated = allocate_scratch(); !allocated) return tl::make_unexpected(allocated.error());
  return std::move(out_);
}

Expected<void> Binder::bind_instruction(const Instruction& in, int32_t index) {
  BoundInstruction bound;
  bound.opcode = in.opcode;
  bound.dtype = in.dtype;
  bound.index = index;
  bound.scale = in.scale;
  bound.row_bytes = static_cast<size_t>(in.row_bytes);
  bound.limit = in.limit;
  bound.input = in.input;
  bound.update = in.update;
  if (in.segment >= 0) bound.segment_start = entry_.segments[static_cast<size_t>(in.segment)].start;
  bound.tag = static_cast<uint32_t>(in.tag);
  if (in.peer >= 0) bound.peer = entry_.peers[static_cast<size_t>(in.peer)];
  if (in.group >= 0) bound.group = entry_.groups[static_cast<size_t>(in.group)];
  if (in.share >= 0) {
    const plan::Share& share = entry_.shares[static_cast<size_t>(in.share)][static_cast<size_t>(in.microbatch)];
    bound.sample_start = share.start;
    bound.sample_count = share.count;
  }
  bound.first_range = static_cast<uint32_t>(out_.ranges.size());
  for (const plan::BufferRange& range : in.ranges) {
    out_.ranges.push_back({out_.buffer(program_, range.buffer) + plan::range_offset(plan_, rank_, in, range),
                           static_cast<size_t>(plan::range_bytes(plan_, rank_, in, range))});
  }
  bound.end_range = static_cast<uint32_t>(out_.ranges.size());
  bind_waits(in, &bound);
  if (in.opcode == Opcode::kSend) out_.bytes_sent += static_cast<int64_t>(range(bound, 0).bytes);
  Expected<void> done;
  if (in.opcode == Opcode::kCompute) done = bind_compute(in, &bound);
  if (in.group >= 0) done = bind_collective(in, &bound);
  if (!done) return done;
  std::vector<BoundInstruction>& stream = out_.streams[static_cast<size_t>(in.stream)].instructions;
  stream.push_back(bound);
  positions_.push_back(static_cast<uint32_t>(stream.size()));
  return {};
}

// Waits on the own stream, and those that an earlier instruction of the stream has waited for, hold anyway.
void Binder::bind_waits(const Instruction& in, BoundInstruction* bound) {
  bound->first_wait = static_cast<uint32_t>(out_.waits.size());
  std::vector<uint32_t>& awaited = awaited_[static_cast<size_t>(in.stream)];
  for (int32_t wait : in.waits) {
    const int32_t stream = program_.instructions[static_cast<size_t>(wait)].stream;
    const uint32_t target = positions_[static_cast<size_t>(wait)];
    uint32_t& known = awaited[static_cast<size_t>(stream)];
    if (stream == in.stream || target <= known) continue;
    known = target;
    out_.waits.push_back({stream, target});
  }
  bound->end_wait = static_cast<uint32_t>(out_.waits.size());
}

Expected<const std::vector<ops::Kernel*>*> Binder::kernels_of(const Instruction& in, const plan::KernelList& list) {
  const KernelKey key{in.chunk, list.samples, in.stream};
  if (auto known = kernels_.find(key); known != kernels_.end()) return &known->second;
  ThreadsScope threads(out_.streams[static_cast<size_t>(in.stream)].threads);
  std::vector<ops::Kernel*> made;
  size_t& scratch = scratch_[static_cast<size_t>(in.stream)];
  for (const plan::KernelCall& call : list.calls) {
    auto kernel = make_kernel(call);
    if (!kernel) return tl::make_unexpected(kernel.error());
    scratch = std::max(scratch, (*kernel)->scratch_bytes());
    made.push_back(kernel->get());
    out_.kernels.push_back(std::move(*kernel));
  }
  return &kernels_.emplace(key, std::move(made)).first->second;
}

Expected<void> Binder::bind_compute(const Instruction& in, BoundInstruction* bound) {
  const plan::KernelList& list = plan::variant_of(plan_.chunks[static_cast<size_t>(in.chunk)], bound->sample_count);
  auto kernels = kernels_of(in, list);
  if (!kernels) return tl::make_unexpected(kernels.error());
  auto bind_operands = [&](const std::vector<plan::Operand>& operands) {
    const uint32_t first = static_cast<uint32_t>(out_.pointers.size());
    for (const plan::Operand& operand : operands) {
      out_.pointers.push_back(
          operand.slot < 0 ? nullptr : range(*bound, static_cast<size_t>(operand.slot)).data + operand.offset);
    }
    return first;
  };
  bound->first_call = static_cast<uint32_t>(out_.calls.size());
  for (size_t i = 0; i < list.calls.size(); i++) {
    BoundCall call{(**kernels)[i]};
    call.in = bind_operands(list.calls[i].inputs);
    call.out = bind_operands(list.calls[i].outputs);
    out_.calls.push_back(call);
  }
  bound->end_call = static_cast<uint32_t>(out_.calls.size());
  return {};
}

Expected<void> Binder::bind_collective(const Instruction& in, BoundInstruction* bound) {
  const std::vector<int32_t>& members = plan_.groups[static_cast<size_t>(bound->group)].ranks;
  const size_t n = members.size();
  const size_t bytes = range(*bound, 0).bytes;
  bound->tag = collectives_[bound->group]++;
  const std::string unfit = "its ranges do not fit a group of " + std::to_string(n);
  size_t sent = 0;
  switch (in.opcode) {
    case Opcode::kAllReduce: sent = 2 * (n - 1) * bytes / n; break;
    case Opcode::kReduceScatter:
      if (bytes != n * range(*bound, 1).bytes) return user_error(unfit);
      sent = (n - 1) * range(*bound, 1).bytes;
      break;
    case Opcode::kAllGather:
      if (range(*bound, 1).bytes != n * bytes) return user_error(unfit);
      sent = (n - 1) * bytes;
      break;
    case Opcode::kAllToAll:
      if (in.row_bytes == 0 && (bytes != range(*bound, 1).bytes || bytes % n != 0)) return user_error(unfit);
      if (in.row_bytes > 0 && (range(*bound, 2).bytes % (8 * n) != 0 || range(*bound, 3).bytes % (8 * n) != 0)) {
        return user_error(unfit);
      }
      bound->members = static_cast<uint32_t>(n);
      sent = (n - 1) * bytes / n;
      break;
    case Opcode::kBroadcast: sent = members[0] == rank_ ? (n - 1) * bytes : 0; break;
    default: return user_error("this build cannot run " + plan::opcode_name(in.opcode));
  }
  out_.bytes_sent += static_cast<int64_t>(sent);
  return {};
}

Expected<void> Binder::allocate_scratch() {
  for (size_t s = 0; s < scratch_.size(); s++) {
    if (scratch_[s] == 0) continue;
    auto scratch = Arena::allocate(static_cast<int64_t>(scratch_[s]));
    if (!scratch) return tl::make_unexpected(scratch.error());
    out_.streams[s].scratch = std::move(*scratch);
  }
  return {};
}

}  // namespace

Expected<BoundProgram> bind_program(const plan::Plan& plan, int rank, int threads) {
  return Binder(plan, rank, threads).bind();
}

}  // namespace piper::runtime
