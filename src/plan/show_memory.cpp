// `piper show --memory` and `piper show --json`.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/show.h"
#include "support/render.h"
#include "support/strings.h"

namespace piper::plan {

namespace {

using Json = nlohmann::ordered_json;

std::vector<int> ranks_of(const Plan& plan, size_t program) {
  std::vector<int> ranks;
  for (size_t r = 0; r < plan.ranks.size(); r++) {
    if (static_cast<size_t>(plan.ranks[r].program) == program) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

// First and last instruction that touches each buffer, -1 where none does.
std::vector<std::pair<int, int>> lives_of(const Program& program) {
  std::vector<std::pair<int, int>> lives(program.buffers.size(), {-1, -1});
  for (size_t i = 0; i < program.instructions.size(); i++) {
    for (const BufferRange& range : program.instructions[i].ranges) {
      auto& [first, last] = lives[range.buffer];
      if (first < 0) first = static_cast<int>(i);
      last = static_cast<int>(i);
    }
  }
  return lives;
}

Json memory_json(const Program& program) {
  MemoryPeak peak = memory_peak(program);
  Json kinds = Json::object();
  for (size_t k = 0; k < kBufferKinds; k++) kinds[buffer_kind_name(static_cast<BufferKind>(k))] = peak.by_kind[k];
  return {{"peak_bytes", peak.total}, {"peak_instruction", peak.instruction}, {"by_kind", kinds}, {"arena_bytes", program.arena_bytes}};
}

Json range_json(const Plan& plan, int rank, const Instruction& instruction, const BufferRange& range) {
  const char* accesses[] = {"", "read", "write", "change"};
  return {{"buffer", range.buffer},
          {"offset", range_offset(plan, rank, instruction, range)},
          {"bytes", range_bytes(plan, rank, instruction, range)},
          {"access", accesses[static_cast<size_t>(range.access)]}};
}

Json instruction_json(const Plan& plan, int rank, const Instruction& instruction) {
  const RankEntry& entry = plan.ranks[rank];
  Json json = {{"opcode", opcode_name(instruction.opcode)}, {"stream", instruction.stream}, {"waits", instruction.waits}};
  if (instruction.chunk >= 0) json["chunk"] = instruction.chunk;
  if (instruction.microbatch >= 0) json["microbatch"] = instruction.microbatch;
  if (instruction.peer >= 0) json["peer"] = entry.peers[instruction.peer];
  if (instruction.group >= 0) json["group"] = entry.groups[instruction.group];
  if (instruction.peer >= 0 || instruction.group >= 0) json["tag"] = instruction.tag;
  if (instruction.row_bytes > 0) json["row_bytes"] = instruction.row_bytes;
  if (instruction.opcode == Opcode::kWaitHost) json["limit"] = instruction.limit;
  if (!instruction.tensor.empty()) json["tensor"] = instruction.tensor;
  if (instruction.source >= 0) json["source"] = plan.sources[instruction.source];
  json["ranges"] = Json::array();
  for (const BufferRange& range : instruction.ranges) json["ranges"].push_back(range_json(plan, rank, instruction, range));
  return json;
}

Json program_json(const Plan& plan, size_t p) {
  const Program& program = plan.programs[p];
  std::vector<int> ranks = ranks_of(plan, p);
  Json json = {{"name", program.name}, {"ranks", ranks}, {"memory", memory_json(program)}};
  json["streams"] = Json::array();
  for (const Stream& stream : program.streams) json["streams"].push_back({{"name", stream.name}, {"logical", stream.logical}});
  json["buffers"] = Json::array();
  for (const Buffer& buffer : program.buffers) {
    json["buffers"].push_back({{"name", buffer.name}, {"kind", buffer_kind_name(buffer.kind)}, {"offset", buffer.offset},
                               {"bytes", buffer.bytes}, {"persistent", buffer.persistent}});
  }
  json["instructions"] = Json::array();
  if (ranks.empty()) return json;
  for (const Instruction& instruction : program.instructions) {
    json["instructions"].push_back(instruction_json(plan, ranks[0], instruction));
  }
  return json;
}

}  // namespace

MemoryPeak memory_peak(const Program& program) {
  std::vector<std::pair<int, int>> lives = lives_of(program);
  size_t n = program.instructions.size();
  std::vector<std::vector<int>> born(n), dead(n);
  MemoryPeak now;
  auto add = [&](int b, int64_t sign) {
    const Buffer& buffer = program.buffers[b];
    now.by_kind[static_cast<size_t>(buffer.kind)] += sign * buffer.bytes;
    now.total += sign * buffer.bytes;
  };
  for (size_t b = 0; b < program.buffers.size(); b++) {
    if (program.buffers[b].persistent) {
      add(static_cast<int>(b), 1);
    } else if (lives[b].first >= 0) {
      born[lives[b].first].push_back(static_cast<int>(b));
      dead[lives[b].second].push_back(static_cast<int>(b));
    }
  }
  MemoryPeak peak = now;
  for (size_t i = 0; i < n; i++) {
    for (int b : born[i]) add(b, 1);
    if (now.total > peak.total || i == 0) {
      peak = now;
      peak.instruction = static_cast<int>(i);
    }
    for (int b : dead[i]) add(b, -1);
  }
  return peak;
}

std::string show_memory(const Plan& plan) {
  std::vector<std::vector<std::string>> rows = {{"program", "ranks"}};
  for (size_t k = 0; k < kBufferKinds; k++) rows[0].push_back(buffer_kind_name(static_cast<BufferKind>(k)));
  rows[0].insert(rows[0].end(), {"peak", "arena", "peak at"});
  for (size_t p = 0; p < plan.programs.size(); p++) {
    const Program& program = plan.programs[p];
    MemoryPeak peak = memory_peak(program);
    std::vector<int> ranks = ranks_of(plan, p);
    std::vector<std::string> row = {program.name.empty() ? std::to_string(p) : program.name, ranks_text(ranks)};
    for (int64_t bytes : peak.by_kind) row.push_back(support::human_bytes(bytes));
    row.push_back(support::human_bytes(peak.total));
    row.push_back(support::human_bytes(program.arena_bytes));
    bool at = peak.instruction >= 0 && !ranks.empty();
    row.push_back(at ? fmt::format("{}: {}", peak.instruction, action_text(plan, ranks[0], program.instructions[peak.instruction])) : "-");
    rows.push_back(std::move(row));
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); c++) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); c++) line += fmt::format("{:<{}}  ", row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return support::printable(text);
}

std::string show_json(const Plan& plan) {
  Json json = {{"format", plan.version}, {"device", plan.device}, {"model", plan.model_file},
               {"model_hash", fmt::format("{:016x}", plan.model_hash)}, {"strategy", plan.strategy_file},
               {"strategy_hash", fmt::format("{:016x}", plan.strategy_hash)}, {"world", plan.world_size()},
               {"batch", plan.batch}, {"microbatches", plan.microbatches}};
  json["mesh"] = Json::array();
  for (const MeshAxis& axis : plan.mesh) json["mesh"].push_back({{"axis", axis.name}, {"size", axis.size}});
  json["parameters"] = Json::array();
  for (const Param& param : plan.params) {
    json["parameters"].push_back({{"name", param.name}, {"dtype", ir::dtype_name(param.dtype)}, {"shape", param.shape}, {"trainable", param.trainable}});
  }
  json["chunks"] = Json::array();
  for (const Chunk& chunk : plan.chunks) {
    json["chunks"].push_back({{"name", chunk.name}, {"flops_per_sample", chunk.flops_per_sample}});
  }
  json["programs"] = Json::array();
  for (size_t p = 0; p < plan.programs.size(); p++) json["programs"].push_back(program_json(plan, p));
  // Names that are no UTF-8 are replaced instead of refused.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace piper::plan
