#include "plan/plan.h"

#include <array>
#include <string_view>

#include "support/error.h"

namespace piper::plan {

namespace {

constexpr std::array<std::string_view, 9> kBufferKindNames = {
    "parameter", "gradient", "optimizer", "activation", "communication", "input", "constant", "scratch", "stats",
};
static_assert(kBufferKindNames.size() == static_cast<size_t>(BufferKind::kStats) + 1);

constexpr std::array<std::string_view, 15> kOpcodeNames = {
    "compute",    "send",      "recv", "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
    "broadcast",  "zero",      "copy", "load_batch", "norm",           "update", "add",
    "wait_host",
};
static_assert(kOpcodeNames.size() == static_cast<size_t>(Opcode::kWaitHost) + 1);

}  // namespace

std::string buffer_kind_name(BufferKind kind) { return std::string(kBufferKindNames.at(static_cast<size_t>(kind))); }

std::string opcode_name(Opcode opcode) { return std::string(kOpcodeNames.at(static_cast<size_t>(opcode))); }

int64_t samples_of(const Plan& plan, int rank, const Instruction& instruction) {
  if (instruction.share < 0) return 0;
  const RankEntry& entry = plan.ranks.at(static_cast<size_t>(rank));
  const std::vector<Share>& share = entry.shares.at(static_cast<size_t>(instruction.share));
  return share.at(static_cast<size_t>(instruction.microbatch)).count;
}

const KernelList& variant_of(const Chunk& chunk, int64_t samples) {
  for (const KernelList& variant : chunk.variants) {
    if (variant.samples == samples) return variant;
  }
  // A list for 0 samples serves every size, because nothing in it depends on them.
  PIPER_CHECK(chunk.variants.size() == 1 && chunk.variants[0].samples == 0,
              "chunk " + chunk.name + " has no kernels for " + std::to_string(samples) + " samples");
  return chunk.variants[0];
}

int64_t range_bytes(const Plan& plan, int rank, const Instruction& instruction, const BufferRange& range) {
  if (instruction.piece < 0) return range.bytes(samples_of(plan, rank, instruction));
  const RankEntry& entry = plan.ranks.at(static_cast<size_t>(rank));
  return range.bytes(entry.pieces.at(static_cast<size_t>(instruction.piece)).count);
}

int64_t range_offset(const Plan& plan, int rank, const Instruction& instruction, const BufferRange& range) {
  if (instruction.piece < 0) return range.offset;
  const RankEntry& entry = plan.ranks.at(static_cast<size_t>(rank));
  return range.offset + range.per_sample * entry.pieces.at(static_cast<size_t>(instruction.piece)).offset;
}

}  // namespace piper::plan
