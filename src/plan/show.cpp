// `piper show`: the whole plan as text, one instruction a line. Sizes and peers are those of a program's first rank.
#include "plan/show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "support/render.h"
#include "support/strings.h"

namespace piper::plan {

namespace {

// Ranks listed one by one; a plan of thousands of ranks shows this many and their number.
constexpr size_t kRanksShown = 64;
constexpr size_t kActionWidth = 56;

std::vector<int> ranks_of(const Plan& plan, size_t program) {
  std::vector<int> ranks;
  for (size_t r = 0; r < plan.ranks.size(); r++) {
    if (static_cast<size_t>(plan.ranks[r].program) == program) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

std::string optimizer_text(const Plan& plan) {
  const OptimizerConfig& o = plan.optimizer;
  std::string text;
  if (o.kind == OptimizerKind::kSgd) {
    text = fmt::format("sgd lr={} momentum={} weight_decay={}{}", o.lr, o.momentum, o.weight_decay, o.nesterov ? " nesterov" : "");
  } else {
    text = fmt::format("{} lr={} betas={},{} eps={} weight_decay={}", o.kind == OptimizerKind::kAdam ? "adam" : "adamw", o.lr,
                       o.beta1, o.beta2, o.eps, o.weight_decay);
  }
  if (plan.schedule.kind != ScheduleKind::kConstant || plan.schedule.warmup > 0) {
    const char* kinds[] = {"constant", "linear", "cosine"};
    text += fmt::format(", {} schedule, warmup {} of {}, floor {}", kinds[static_cast<size_t>(plan.schedule.kind)],
                        plan.schedule.warmup, plan.schedule.total, plan.schedule.floor);
  }
  if (plan.clip_norm > 0) text += fmt::format(", clip_norm {}", plan.clip_norm);
  return text + (plan.skip_nonfinite ? ", skips non-finite steps" : "");
}

std::string mesh_text(const Plan& plan) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : plan.mesh) axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  return fmt::format("[{}], {} ranks, {} programs", support::join(axes, ", "), plan.ranks.size(), plan.programs.size());
}

std::string header(const Plan& plan) {
  int64_t elements = 0;
  for (const Param& param : plan.params) elements += ir::num_elements(param.shape);
  std::string text = fmt::format("plan format {} for {}\n", plan.version, plan.device);
  text += fmt::format("model       {} (hash {:016x})\n", plan.model_file, plan.model_hash);
  text += fmt::format("strategy    {} (hash {:016x})\n", plan.strategy_file, plan.strategy_hash);
  text += fmt::format("mesh        {}\n", mesh_text(plan));
  text += fmt::format("batch       {} samples in {} microbatches, seed {}\n", plan.batch, plan.microbatches, plan.seed);
  text += fmt::format("optimizer   {}\n", optimizer_text(plan));
  text += fmt::format("parameters  {} tensors, {} elements\n", plan.params.size(), elements);
  return text;
}

std::string tensor_text(DType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{}[{}]", ir::dtype_name(dtype), fmt::join(shape, ", "));
}

std::string tables(const Plan& plan) {
  std::string text = "\nparameters\n";
  for (size_t i = 0; i < plan.params.size(); i++) {
    const Param& param = plan.params[i];
    text += fmt::format("  {:>3}  {} {}{}{}\n", i, param.name, tensor_text(param.dtype, param.shape),
                        param.statistics  ? " statistics"
                        : param.trainable ? ""
                                          : " frozen",
                        param.transposed ? " transposed" : "");
  }
  text += "inputs\n";
  for (size_t i = 0; i < plan.inputs.size(); i++) {
    const Input& input = plan.inputs[i];
    text += fmt::format("  {:>3}  {} {} a sample{}\n", i, input.name, tensor_text(input.dtype, input.sample_shape),
                        input.is_target ? ", target" : "");
  }
  if (!plan.constants.empty()) text += "constants\n";
  for (size_t i = 0; i < plan.constants.size(); i++) {
    text += fmt::format("  {:>3}  {} {}\n", i, plan.constants[i].name, tensor_text(plan.constants[i].dtype, plan.constants[i].shape));
  }
  text += "loss\n";
  for (const LossTerm& term : plan.loss) {
    text += fmt::format("  {} x {}: sum in stats[{}], count in stats[{}]\n", term.weight, term.name, term.sum_index, term.count_index);
  }
  text += "groups\n";
  for (size_t i = 0; i < plan.groups.size(); i++) {
    const Group& group = plan.groups[i];
    text += fmt::format("  {:>3}  {}: ranks {}\n", i, group.name, ranks_text({group.ranks.begin(), group.ranks.end()}));
  }
  return text;
}

std::string rank_table(const Plan& plan) {
  std::string text = "ranks\n";
  for (size_t r = 0; r < std::min(plan.ranks.size(), kRanksShown); r++) {
    const RankEntry& rank = plan.ranks[r];
    text += fmt::format("  {:>3}  program {} at ({})", r, rank.program, fmt::join(rank.coordinates, ", "));
    if (!rank.peers.empty()) text += fmt::format(", peers {}", fmt::join(rank.peers, " "));
    if (!rank.groups.empty()) text += fmt::format(", groups {}", fmt::join(rank.groups, " "));
    for (size_t s = 0; s < rank.shares.size(); s++) {
      text += fmt::format(", share {}:", s);
      for (const Share& share : rank.shares[s]) text += fmt::format(" {}-{}", share.start, share.start + share.count);
    }
    for (size_t i = 0; i < rank.pieces.size(); i++) {
      text += fmt::format(", piece {}: {}-{}", i, rank.pieces[i].offset, rank.pieces[i].offset + rank.pieces[i].count);
    }
    for (size_t i = 0; i < rank.segments.size(); i++) {
      text += fmt::format(", segment {}: {}-{}", i, rank.segments[i].start, rank.segments[i].start + rank.segments[i].count);
    }
    text += "\n";
  }
  if (plan.ranks.size() > kRanksShown) text += fmt::format("  and {} more\n", plan.ranks.size() - kRanksShown);
  return text;
}

std::string ranges_text(const Plan& plan, int rank, const Instruction& instruction) {
  const Program& program = plan.programs[plan.ranks[rank].program];
  std::string by_access[4];
  for (const BufferRange& range : instruction.ranges) {
    const Buffer& buffer = program.buffers[range.buffer];
    int64_t begin = range_offset(plan, rank, instruction, range);
    int64_t bytes = range_bytes(plan, rank, instruction, range);
    bool whole = begin == 0 && bytes == buffer.bytes;
    by_access[static_cast<size_t>(range.access)] +=
        " " + buffer.name + (whole ? "" : fmt::format("[{}:{}]", begin, begin + bytes));
  }
  const char* verbs[] = {"", "reads", "writes", "changes"};
  std::vector<std::string> parts;
  for (size_t a = 1; a < 4; a++) {
    if (!by_access[a].empty()) parts.push_back(verbs[a] + by_access[a]);
  }
  return support::join(parts, "; ");
}

std::string instruction_lines(const Plan& plan, const Program& program, int rank) {
  size_t stream_width = 0, action_width = 0;
  std::vector<std::string> actions;
  for (const Instruction& instruction : program.instructions) {
    std::string action = action_text(plan, rank, instruction);
    if (instruction.share >= 0) action += fmt::format(", {} samples", samples_of(plan, rank, instruction));
    action_width = std::max(action_width, std::min(action.size(), kActionWidth));
    stream_width = std::max(stream_width, program.streams[instruction.stream].name.size());
    actions.push_back(std::move(action));
  }
  std::string text;
  for (size_t i = 0; i < program.instructions.size(); i++) {
    const Instruction& instruction = program.instructions[i];
    std::string line = fmt::format("  {:>4}  {:<{}}  {:<{}}  {}", i, program.streams[instruction.stream].name, stream_width,
                                   actions[i], action_width, ranges_text(plan, rank, instruction));
    if (!instruction.waits.empty()) line += fmt::format("; waits for {}", fmt::join(instruction.waits, " "));
    if (instruction.source >= 0) line += "  # " + plan.sources[instruction.source];
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string program_text(const Plan& plan, size_t p) {
  const Program& program = plan.programs[p];
  std::vector<int> ranks = ranks_of(plan, p);
  std::string text = fmt::format("\nprogram {} \"{}\", ranks {}, arena {} bytes\n", p, program.name,
                                 ranks.empty() ? "none" : ranks_text(ranks), program.arena_bytes);
  const char* kinds[] = {"compute", "send", "recv", "collective", "load"};
  text += " streams\n";
  for (size_t s = 0; s < program.streams.size(); s++) {
    const Stream& stream = program.streams[s];
    text += fmt::format("  {:>4}  {} ({}, logical {}{})\n", s, stream.name, kinds[static_cast<size_t>(stream.kind)],
                        stream.logical, stream.high_priority ? ", high priority" : "");
  }
  text += " buffers\n";
  for (size_t b = 0; b < program.buffers.size(); b++) {
    const Buffer& buffer = program.buffers[b];
    text += fmt::format("  {:>4}  {} {} {}, bytes {}-{}{}\n", b, buffer.name, buffer_kind_name(buffer.kind),
                        ir::dtype_name(buffer.dtype), buffer.offset, buffer.offset + buffer.bytes,
                        buffer.persistent ? ", persistent" : "");
  }
  text += " homes\n";
  for (const ParamHome& home : program.params) {
    text += fmt::format("        {} at {}+{}{}{}\n", plan.params[home.param].name, program.buffers[home.buffer].name, home.offset,
                        home.segment < 0 ? "" : fmt::format(" of segment {}", home.segment), home.owner ? ", saved here" : "");
  }
  for (const auto& [constant, buffer] : program.constants) {
    text += fmt::format("        {} at {}\n", plan.constants[constant].name, program.buffers[buffer].name);
  }
  text += " instructions\n";
  // Without a rank there are no peers and no sizes to print.
  return ranks.empty() ? text : text + instruction_lines(plan, program, ranks[0]);
}

std::string operand_text(const Chunk& chunk, const Operand& operand) {
  if (operand.slot < 0) return "-";
  std::string place = operand.offset == 0 ? "" : fmt::format("+{}", operand.offset);
  return chunk.slots[operand.slot].name + place + " " + tensor_text(operand.dtype, operand.shape);
}

std::string call_text(const Chunk& chunk, const KernelCall& call) {
  std::vector<std::string> inputs, outputs;
  for (const Operand& input : call.inputs) inputs.push_back(operand_text(chunk, input));
  for (const Operand& output : call.outputs) outputs.push_back(operand_text(chunk, output));
  std::string attrs = ir::to_string(call.attrs);
  return fmt::format("    {}{}{}: {} -> {}{}{}\n", call.op, attrs.empty() ? "" : " ", attrs, support::join(inputs, ", "),
                     support::join(outputs, ", "), call.path.empty() ? "" : "  # ", call.path);
}

std::string chunk_text(const Plan& plan, size_t c) {
  const Chunk& chunk = plan.chunks[c];
  const char* accesses[] = {"", "read", "write", "change"};
  std::string text = fmt::format("\nchunk {} \"{}\" (hash {:016x}, {} flops a sample)\n", c, chunk.name, chunk.hash, chunk.flops_per_sample);
  for (const Slot& slot : chunk.slots) {
    text += fmt::format("  slot {} ({})\n", slot.name, accesses[static_cast<size_t>(slot.access)]);
  }
  for (const KernelList& variant : chunk.variants) {
    text += variant.samples == 0 ? "  for any samples" : fmt::format("  for {} samples", variant.samples);
    text += fmt::format(", slot bytes {}\n", fmt::join(variant.slot_bytes, " "));
    for (const KernelCall& call : variant.calls) text += call_text(chunk, call);
  }
  return text;
}

}  // namespace

std::string show(const Plan& plan) {
  std::string text = header(plan) + tables(plan) + rank_table(plan);
  for (size_t p = 0; p < plan.programs.size(); p++) text += program_text(plan, p);
  for (size_t c = 0; c < plan.chunks.size(); c++) text += chunk_text(plan, c);
  return support::printable(text);
}

}  // namespace piper::plan
