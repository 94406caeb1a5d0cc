// ChunkTable and SourceTable of program_builder.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/program_builder.h"
#include "ir/shares.h"
#include "passes/losses.h"

namespace piper::codegen {

int32_t SourceTable::add(support::SourceSpan span) {
  if (!span.valid()) return -1;
  const auto [it, fresh] = index_.try_emplace({span.file, span.begin}, static_cast<int32_t>(plan_.sources.size()));
  if (fresh) {
    const support::LineColumn at = sources_.locate(span.file, span.begin);
    std::string line(sources_.line(span.file, at.line));
    line.erase(0, line.find_first_not_of(" \t"));
    plan_.sources.push_back(fmt::format("{}:{}: {}", sources_.name(span.file), at.line, line));
  }
  return it->second;
}

std::vector<int64_t> ChunkTable::sizes(ir::PlacementId placement) const {
  const int64_t degree = ir::data_degree(dag_.mesh, dag_.placements[placement.index()]);
  std::set<int64_t> distinct;
  for (const auto& row : ir::cut_shares(batch_, dag_.microbatches, degree)) {
    for (const ir::Interval& share : row) distinct.insert(share.count);
  }
  return {distinct.begin(), distinct.end()};
}

LoweredPass ChunkTable::add(std::vector<LoweredChunk> parts) {
  LoweredPass pass;
  for (LoweredChunk& part : parts) {
    pass.chunks.push_back(static_cast<int32_t>(plan_.chunks.size()));
    plan_.chunks.push_back(std::move(part.code));
    pass.slots.push_back(std::move(part.slots));
  }
  return pass;
}

const LoweredPair& ChunkTable::get(ir::ChunkId chunk, ir::PlacementId placement) {
  const int64_t degree = ir::data_degree(dag_.mesh, dag_.placements[placement.index()]);
  const auto [it, fresh] = pairs_.try_emplace({chunk, degree});
  if (!fresh) return it->second;
  ChunkLowering lowering(dag_, chunk, sizes(placement));
  LoweredPair& pair = it->second;
  std::vector<LoweredChunk> forward;
  forward.push_back(lowering.forward());
  forward.front().code.hash = chunk_hash(dag_, dag_.chunk(chunk));
  pair.forward = add(std::move(forward));
  pair.backward = add(lowering.backward());
  pair.saved_bytes = lowering.saved_bytes();
  pair.scratch_bytes = lowering.scratch_bytes();
  return pair;
}

const LoweredPair& ChunkTable::count(size_t term, ir::PlacementId placement) {
  const int64_t degree = ir::data_degree(dag_.mesh, dag_.placements[placement.index()]);
  const auto [it, fresh] = counts_.try_emplace({term, degree});
  if (!fresh) return it->second;
  const ir::LossInfo& loss = dag_.losses[term];
  const ir::Op& op = dag_.model.op(loss.count_op);
  ir::Chunk ops;
  ops.name = op.inputs.empty() ? op.name : dag_.model.value(op.inputs[0]).name;
  ops.forward = passes::count_ops(dag_.model, loss);
  ChunkLowering lowering(dag_, ops, sizes(placement), {{loss.count, loss_count_index(term)}});
  LoweredPair& pair = it->second;
  std::vector<LoweredChunk> parts;
  parts.push_back(lowering.forward());
  parts.front().code.name = fmt::format("count {}", ops.name);
  pair.forward = add(std::move(parts));
  pair.scratch_bytes = lowering.scratch_bytes();
  return pair;
}

}  // namespace piper::codegen
