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

ChunkTable::ChunkTable(const ir::TrainingDag& dag, plan::Plan& plan, int64_t batch)
    : dag_(dag), plan_(plan), batch_(batch), whole_(dag.chunks.size(), false), split_(dag.chunks.size(), false) {
  for (const ir::Node& n : dag.nodes) {
    if (n.pass == ir::Pass::kBackward) whole_[n.chunk.index()] = true;
    if (n.pass == ir::Pass::kInputGrad) split_[n.chunk.index()] = true;
  }
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
    // Nothing to run, and nobody looks for it.
    const bool empty = part.code.variants.front().calls.empty() && part.code.hash == 0;
    pass.chunks.push_back(empty ? -1 : static_cast<int32_t>(plan_.chunks.size()));
    if (!empty) plan_.chunks.push_back(std::move(part.code));
    pass.slots.push_back(std::move(part.slots));
  }
  return pass;
}

const LoweredPasses& ChunkTable::get(ir::ChunkId chunk, ir::PlacementId placement) {
  const int64_t degree = ir::data_degree(dag_.mesh, dag_.placements[placement.index()]);
  const auto [it, fresh] = passes_.try_emplace({chunk, degree});
  if (!fresh) return it->second;
  ChunkLowering lowering(dag_, chunk, sizes(placement));
  LoweredPasses& passes = it->second;
  std::vector<LoweredChunk> forward = lowering.forward();
  // A chunk is computed once its last part is.
  forward.back().code.hash = chunk_hash(dag_, dag_.chunk(chunk));
  passes.forward = add(std::move(forward));
  passes.saved_bytes = {lowering.saved_bytes(0), lowering.saved_bytes(1)};
  ChunkLowering halves = lowering;  // both ways to lower the backward start from the same forward
  if (whole_[chunk.index()]) passes.backward = add(lowering.backward());
  if (split_[chunk.index()]) {
    ChunkLowering::Halves lowered = halves.split_backward();
    passes.inputs = add(std::move(lowered.inputs));
    passes.weights = add(std::move(lowered.weights));
    passes.carried_bytes = halves.carried_bytes();
  }
  passes.scratch_bytes = std::max(lowering.scratch_bytes(), halves.scratch_bytes());
  return passes;
}

const LoweredPasses& ChunkTable::count(size_t term, ir::PlacementId placement) {
  const int64_t degree = ir::data_degree(dag_.mesh, dag_.placements[placement.index()]);
  const auto [it, fresh] = counts_.try_emplace({term, degree});
  if (!fresh) return it->second;
  const ir::LossInfo& loss = dag_.losses[term];
  const ir::Op& op = dag_.model.op(loss.count_op);
  ir::Chunk ops;
  ops.name = op.inputs.empty() ? op.name : dag_.model.value(op.inputs[0]).name;
  ops.forward = passes::count_ops(dag_.model, loss);
  ops.forward_parts = {{0, ops.forward.size(), {}, {}}};
  ChunkLowering lowering(dag_, ops, sizes(placement), {{loss.count, loss_count_index(term)}});
  LoweredPasses& passes = it->second;
  std::vector<LoweredChunk> parts = lowering.forward();
  parts.front().code.name = fmt::format("count {}", ops.name);
  passes.forward = add(std::move(parts));
  passes.scratch_bytes = lowering.scratch_bytes();
  return passes;
}

}  // namespace piper::codegen
