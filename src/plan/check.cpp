// The tables of a plan; check_instructions.cpp has the programs' instructions.
#include "plan/check.h"

#include <algorithm>
#include <map>

#include "plan/check_rules.h"

namespace piper::plan {

namespace {

using rules::kMaxBytes;
using rules::Reporter;
using rules::valid_index;

void check_params(const Plan& plan, Reporter& report) {
  for (const Param& param : plan.params) {
    report.require(tensor_bytes(param.dtype, param.shape) >= 0, "parameter `" + param.name + "` has an impossible shape");
  }
  for (const ConstantData& constant : plan.constants) {
    int64_t bytes = tensor_bytes(constant.dtype, constant.shape);
    report.require(bytes >= 0 && static_cast<size_t>(bytes) == constant.bytes.size(),
                   "constant `" + constant.name + "` has " + std::to_string(constant.bytes.size()) +
                       " bytes, its shape asks for " + std::to_string(bytes));
  }
  for (const Input& input : plan.inputs) {
    report.require(tensor_bytes(input.dtype, input.sample_shape) >= 0, "input `" + input.name + "` has an impossible shape");
    report.require(input.vocabulary >= 0, "input `" + input.name + "` has a negative vocabulary");
  }
  report.require(plan.stats_count >= 2 && plan.stats_count <= (1 << 20), "impossible number of statistics");
  for (const LossTerm& term : plan.loss) {
    bool inside = term.sum_index >= 0 && term.sum_index < plan.stats_count && term.count_index >= 0 &&
                  term.count_index < plan.stats_count;
    report.require(inside, "loss term `" + term.name + "` is outside the statistics");
  }
  for (const Update& update : plan.updates) {
    int64_t at = 0;
    for (const UpdateRun& run : update.runs) {
      bool ordered = run.begin >= at && run.end >= run.begin && run.end <= kMaxBytes;
      if (!report.require(ordered, "runs of update `" + update.name + "` are not ascending")) break;
      at = run.end;
    }
  }
}

void check_program(const Plan& plan, int p, Reporter& report) {
  const Program& program = plan.programs[p];
  report.at(p, -1, -1);
  report.require(program.streams.size() <= rules::kMaxStreams, "too many streams");
  report.require(program.arena_bytes >= 0 && program.arena_bytes <= kMaxBytes, "impossible arena size");
  for (const Buffer& buffer : program.buffers) {
    bool sized = buffer.offset >= 0 && buffer.bytes >= 0 && buffer.offset <= kMaxBytes && buffer.bytes <= kMaxBytes;
    report.require(sized && buffer.offset + buffer.bytes <= program.arena_bytes,
                   "buffer `" + buffer.name + "` is outside the arena");
    report.require(buffer.offset % kAlignment == 0, "buffer `" + buffer.name + "` is not aligned");
  }
  if (report.require(program.stats_buffer == -1 || valid_index(program.stats_buffer, program.buffers),
                     "the statistics buffer does not exist") &&
      program.stats_buffer >= 0) {
    const Buffer& stats = program.buffers[program.stats_buffer];
    report.require(stats.kind == BufferKind::kStats && stats.bytes >= plan.stats_count * int64_t{8},
                   "the statistics buffer is of another kind or too small");
  }
  for (const ParamHome& home : program.params) {
    if (!report.require(valid_index(home.param, plan.params) && valid_index(home.buffer, program.buffers),
                        "a parameter's home does not exist")) {
      continue;
    }
    const Param& param = plan.params[home.param];
    const Buffer& buffer = program.buffers[home.buffer];
    int64_t bytes = tensor_bytes(param.dtype, param.shape);
    const bool whole = home.segment < 0;
    report.require(home.segment >= -1, "a negative index");
    report.require(whole || param.dtype == DType::kF32, "parameter `" + param.name + "` of another type than f32 is in a segment");
    report.require(home.offset >= 0 && home.offset <= kMaxBytes && bytes >= 0 && (!whole || home.offset + bytes <= buffer.bytes),
                   "parameter `" + param.name + "` is outside buffer `" + buffer.name + "`");
    report.require(buffer.kind == BufferKind::kParameter, "parameter `" + param.name + "` is in buffer `" +
                                                              buffer.name + "`, which is not for parameters");
  }
  for (const auto& [constant, buffer] : program.constants) {
    if (!report.require(valid_index(constant, plan.constants) && valid_index(buffer, program.buffers),
                        "a constant's home does not exist")) {
      continue;
    }
    report.require(static_cast<int64_t>(plan.constants[constant].bytes.size()) <= program.buffers[buffer].bytes,
                   "constant `" + plan.constants[constant].name + "` is larger than its buffer");
  }
  rules::check_instructions(plan, p, report);
}

void check_shares(const Plan& plan, const RankEntry& rank, Reporter& report) {
  for (const std::vector<Share>& shares : rank.shares) {
    if (!report.require(shares.size() == static_cast<size_t>(plan.microbatches), "a share does not list every microbatch")) {
      continue;
    }
    for (const Share& share : shares) {
      bool inside = share.start >= 0 && share.count >= 0 && share.start <= plan.batch &&
                    share.count <= plan.batch - share.start;
      report.require(inside, "a share is outside the batch");
    }
  }
  for (const Piece& piece : rank.pieces) {
    bool inside = piece.offset >= 0 && piece.count >= 0 && piece.offset <= plan.batch &&
                  piece.count <= plan.batch - piece.offset;
    report.require(inside, "a piece is outside the batch");
  }
  for (const Segment& segment : rank.segments) {
    bool inside = segment.start >= 0 && segment.count >= 0 && segment.start <= kMaxBytes / 4 && segment.count <= kMaxBytes / 4;
    report.require(inside, "a segment of an impossible size");
  }
}

// The largest index that a program uses of each table of a rank.
struct Needs {
  int32_t peer = -1, group = -1, piece = -1, share = -1, segment = -1;
};

std::vector<Needs> needs_of_programs(const Plan& plan) {
  std::vector<Needs> all;
  for (const Program& program : plan.programs) {
    Needs needs;
    for (const Instruction& instruction : program.instructions) {
      needs.peer = std::max(needs.peer, instruction.peer);
      needs.group = std::max(needs.group, instruction.group);
      needs.piece = std::max(needs.piece, instruction.piece);
      needs.share = std::max(needs.share, instruction.share);
      needs.segment = std::max(needs.segment, instruction.segment);
    }
    for (const ParamHome& home : program.params) needs.segment = std::max(needs.segment, home.segment);
    all.push_back(needs);
  }
  return all;
}

// Buffers that hold segments have room for the rank's; what is left of them belongs to nobody.
void check_segments(const Plan& plan, const RankEntry& rank, Reporter& report) {
  const Program& program = plan.programs[rank.program];
  for (const ParamHome& home : program.params) {
    if (home.segment < 0 || !valid_index(home.buffer, program.buffers)) continue;
    report.require(program.buffers[home.buffer].bytes >= rank.segments[home.segment].count * 4,
                   "buffer `" + program.buffers[home.buffer].name + "` is smaller than the rank's segment");
  }
  for (const Instruction& in : program.instructions) {
    if (in.opcode != Opcode::kUpdate || in.segment < 0 || in.ranges.empty()) continue;
    report.require(in.ranges[0].fixed >= rank.segments[in.segment].count * 4, "an update's ranges are smaller than the rank's segment");
  }
}

void check_rank(const Plan& plan, int r, const std::vector<Needs>& needs, Reporter& report) {
  const RankEntry& rank = plan.ranks[r];
  report.at(-1, r, -1);
  if (report.require(rank.coordinates.size() == plan.mesh.size(), "coordinates do not fit the mesh")) {
    for (size_t a = 0; a < rank.coordinates.size(); a++) {
      report.require(rank.coordinates[a] >= 0 && rank.coordinates[a] < plan.mesh[a].size, "coordinates outside the mesh");
    }
  }
  for (int32_t peer : rank.peers) {
    report.require(valid_index(peer, plan.ranks) && peer != r, "peer " + std::to_string(peer) + " is not another rank");
  }
  for (int32_t group : rank.groups) {
    if (!report.require(valid_index(group, plan.groups), "a group does not exist")) continue;
    const std::vector<int32_t>& members = plan.groups[group].ranks;
    report.require(std::binary_search(members.begin(), members.end(), r),
                   "the rank is not in its group `" + plan.groups[group].name + "`");
  }
  check_shares(plan, rank, report);
  if (!report.require(valid_index(rank.program, plan.programs), "its program does not exist")) return;
  const Needs& need = needs[rank.program];
  report.at(rank.program, r, -1);
  report.require(need.peer < static_cast<int64_t>(rank.peers.size()), "the program uses a peer that the rank lacks");
  report.require(need.group < static_cast<int64_t>(rank.groups.size()), "the program uses a group that the rank lacks");
  report.require(need.piece < static_cast<int64_t>(rank.pieces.size()), "the program uses a piece that the rank lacks");
  report.require(need.share < static_cast<int64_t>(rank.shares.size()), "the program uses a share that the rank lacks");
  if (report.require(need.segment < static_cast<int64_t>(rank.segments.size()), "the program uses a segment that the rank lacks")) {
    check_segments(plan, rank, report);
  }
}

std::vector<rules::ProgramSizes> sizes_of_programs(const Plan& plan) {
  std::vector<rules::ProgramSizes> all(plan.programs.size());
  for (const RankEntry& rank : plan.ranks) {
    rules::ProgramSizes& sizes = all[rank.program];
    if (sizes.counts.size() < rank.shares.size()) sizes.counts.resize(rank.shares.size());
    for (size_t s = 0; s < rank.shares.size(); s++) {
      sizes.counts[s].resize(static_cast<size_t>(plan.microbatches));
      for (size_t m = 0; m < rank.shares[s].size(); m++) sizes.counts[s][m].insert(rank.shares[s][m].count);
    }
    if (sizes.piece_ends.size() < rank.pieces.size()) sizes.piece_ends.resize(rank.pieces.size(), 0);
    for (size_t i = 0; i < rank.pieces.size(); i++) {
      sizes.piece_ends[i] = std::max(sizes.piece_ends[i], rank.pieces[i].offset + rank.pieces[i].count);
    }
  }
  return all;
}

void check_contract(const Plan& plan, Reporter& report) {
  report.at(-1, -1, -1);
  const Contract& contract = plan.contract;
  report.require(contract.chunk_names.size() == contract.chunk_hashes.size(), "the contract's chunks lack names");
  for (const Contribution& contribution : contract.contributions) {
    report.require(valid_index(contribution.param, plan.params) && valid_index(contribution.chunk, contract.chunk_hashes),
                   "a contribution of the contract does not exist");
  }
}

void check_groups(const Plan& plan, Reporter& report) {
  for (const Group& group : plan.groups) {
    bool ascending = !group.ranks.empty();
    for (size_t i = 0; ascending && i < group.ranks.size(); i++) {
      ascending = valid_index(group.ranks[i], plan.ranks) && (i == 0 || group.ranks[i - 1] < group.ranks[i]);
    }
    report.require(ascending, "the ranks of group `" + group.name + "` are not ascending ranks of the plan");
  }
}

}  // namespace

std::string Problem::where(const Plan& plan) const {
  std::string text;
  if (program >= 0) text += "program " + std::to_string(program);
  if (program >= 0 && !plan.programs[program].name.empty()) text += " `" + plan.programs[program].name + "`";
  if (instruction >= 0) text += ", instruction " + std::to_string(instruction);
  if (rank >= 0) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return text.empty() ? text : text + ": ";
}

int64_t tensor_bytes(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = ir::dtype_size(dtype);
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return -1;
    empty = empty || size == 0;
    if (size != 0 && (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMaxBytes)) return -1;
  }
  return empty ? 0 : bytes;
}

std::vector<int> size_representatives(const Plan& plan) {
  std::map<std::vector<int64_t>, int> seen;
  std::vector<int> representatives;
  for (size_t r = 0; r < plan.ranks.size(); r++) {
    const RankEntry& rank = plan.ranks[r];
    std::vector<int64_t> key = {rank.program, static_cast<int64_t>(rank.shares.size())};
    for (const std::vector<Share>& shares : rank.shares) {
      for (const Share& share : shares) key.push_back(share.count);
    }
    for (const Piece& piece : rank.pieces) {
      key.push_back(piece.offset);
      key.push_back(piece.count);
    }
    if (seen.emplace(std::move(key), static_cast<int>(r)).second) representatives.push_back(static_cast<int>(r));
  }
  return representatives;
}

std::vector<Problem> check(const Plan& plan) {
  std::vector<Problem> problems;
  Reporter report(&problems);
  report.require(!plan.ranks.empty(), "the plan has no ranks");
  report.require(plan.batch >= 1 && plan.batch <= (int64_t{1} << 31), "impossible batch");
  report.require(plan.microbatches >= 1 && plan.microbatches <= plan.batch, "impossible number of microbatches");
  for (const MeshAxis& axis : plan.mesh) {
    report.require(axis.size >= 1, "axis `" + axis.name + "` of the mesh has no devices");
  }
  check_params(plan, report);
  check_groups(plan, report);
  for (size_t c = 0; c < plan.chunks.size() && !report.full(); c++) rules::check_chunk(plan, c, report);
  check_contract(plan, report);
  for (size_t p = 0; p < plan.programs.size() && !report.full(); p++) check_program(plan, static_cast<int>(p), report);
  std::vector<Needs> needs = needs_of_programs(plan);
  for (size_t r = 0; r < plan.ranks.size() && !report.full(); r++) check_rank(plan, static_cast<int>(r), needs, report);
  // Sizes are computed from the tables above, so only once those are sound.
  if (!problems.empty()) return problems;
  std::vector<rules::ProgramSizes> sizes = sizes_of_programs(plan);
  for (size_t p = 0; p < plan.programs.size(); p++) rules::check_sizes(plan, static_cast<int>(p), sizes[p], report);
  return problems;
}

}  // namespace piper::plan
