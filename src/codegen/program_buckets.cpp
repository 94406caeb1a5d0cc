// ProgramBuilder: buckets. Where their parameters, gradients and optimizer state live, and the collectives over them.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/program_builder.h"
#include "ir/shares.h"
#include "passes/replicate.h"
#include "support/error.h"

namespace piper::codegen {

using ir::Bucket;
using ir::BucketId;
using ir::Node;
using ir::NodeId;
using ir::NodeKind;
using ir::PlacementId;
using plan::Access;
using plan::BufferKind;
using plan::BufferRange;
using plan::Instruction;
using plan::Opcode;
using plan::StreamKind;

// ---- Buffers ----

int32_t ProgramBuilder::bucket_buffer(size_t bucket, BufferKind kind, const std::string& what, size_t depth, bool persistent) {
  const Bucket& b = dag_.buckets[bucket];
  return buffer(fmt::format("{} {}", b.name, what), kind, ir::DType::kF32, b.elements / b.degree(depth) * 4, persistent);
}

int32_t ProgramBuilder::params_home(size_t bucket) {
  return bucket_buffer(bucket, BufferKind::kParameter, "params", dag_.buckets[bucket].depth(3));
}

int32_t ProgramBuilder::master(size_t bucket) {
  const Bucket& b = dag_.buckets[bucket];
  return b.depth(1) == b.depth(3) ? params_home(bucket) : bucket_buffer(bucket, BufferKind::kParameter, "master", b.depth(1));
}

int32_t ProgramBuilder::gradient_home(size_t bucket) {
  return bucket_buffer(bucket, BufferKind::kGradient, "grads", dag_.buckets[bucket].depth(2));
}

int32_t ProgramBuilder::final_gradient(size_t bucket) {
  const Bucket& b = dag_.buckets[bucket];
  if (b.depth(1) == b.depth(2)) return gradient_home(bucket);
  return bucket_buffer(bucket, BufferKind::kGradient, "grads shard", b.depth(1), false);
}

int32_t ProgramBuilder::gathered(NodeId gather) {
  return bucket_buffer(dag_.node(gather).bucket.index(), BufferKind::kParameter, fmt::format("gathered by {}", gather.value),
                       dag_.buckets[dag_.node(gather).bucket.index()].depth(4), false);
}

int32_t ProgramBuilder::run_gradient(NodeId scatter) {
  const int32_t b = bucket_buffer(dag_.node(scatter).bucket.index(), BufferKind::kGradient, fmt::format("grads for {}", scatter.value),
                                  dag_.buckets[dag_.node(scatter).bucket.index()].depth(4), false);
  if (!begun_.insert(scatter).second) return b;
  // Two at most: one that a reduction reads, and the next.
  emit_zero(b, dag_.buckets[dag_.node(scatter).bucket.index()].name + " grads", scatters_.size() >= 2 ? std::vector<int32_t>{scatters_[scatters_.size() - 2]} : std::vector<int32_t>{});
  return b;
}

BufferRange ProgramBuilder::bind_params(size_t bucket, Access access, const Node& node) {
  if (!dag_.buckets[bucket].gathers()) return whole(params_home(bucket), access);
  for (NodeId in : node.inputs) {
    const Node& from = dag_.node(in);
    if (from.kind == NodeKind::kAllGather && from.bucket.index() == bucket && from.placement == node.placement) return whole(gathered(in), access);
  }
  PIPER_CHECK(false, "a compute reads a bucket that is not gathered for it");
  return {};
}

BufferRange ProgramBuilder::bind_gradients(size_t bucket, Access access, NodeId id) {
  if (!dag_.buckets[bucket].scatters()) return whole(gradient_home(bucket), access);
  const auto run = run_of_.find({id, BucketId(static_cast<int64_t>(bucket))});
  PIPER_CHECK(run != run_of_.end(), "a compute adds to a bucket in no run");
  return whole(run_gradient(run->second), access);
}

void ProgramBuilder::find_runs() {
  for (size_t i = 0; i < dag_.nodes.size(); ++i) {
    const Node& n = dag_.nodes[i];
    if (n.kind != NodeKind::kReduceScatter || !n.per_run || !mine(n.placement)) continue;
    for (NodeId in : n.inputs) run_of_[{in, n.bucket}] = NodeId(static_cast<int64_t>(i));
    scattered_.insert(n.bucket);
  }
}

// ---- Instructions ----

void ProgramBuilder::emit_zero(int32_t b, std::string tensor, std::vector<int32_t> waits) {
  Instruction in;
  in.opcode = Opcode::kZero;
  in.stream = stream(kComputeStream, StreamKind::kCompute, kComputeStream);
  in.ranges = {whole(b, Access::kWrite)};
  in.tensor = std::move(tensor);
  emit(std::move(in), std::move(waits));
}

void ProgramBuilder::emit_prologue() {
  emit_zero(stats_, "stats");
  for (size_t b = 0; b < dag_.buckets.size(); ++b) {
    if (!dag_.buckets[b].trainable || !holds(dag_.buckets[b])) continue;
    // The first reduction of a run writes its shard, later ones add to it.
    if (!scattered_.count(BucketId(static_cast<int64_t>(b)))) emit_zero(gradient_home(b), dag_.buckets[b].name + " grads");
  }
  scattered_.clear();
}

int32_t ProgramBuilder::group_index(const GroupKey& key) {
  auto it = std::find(tables_.groups.begin(), tables_.groups.end(), key);
  const int32_t index = static_cast<int32_t>(it - tables_.groups.begin());
  if (it == tables_.groups.end()) tables_.groups.push_back(key);
  return index;
}

int32_t ProgramBuilder::shard_index(const ShardKey& key) {
  auto it = std::find(tables_.shards.begin(), tables_.shards.end(), key);
  const int32_t index = static_cast<int32_t>(it - tables_.shards.begin());
  if (it == tables_.shards.end()) tables_.shards.push_back(key);
  return index;
}

bool ProgramBuilder::holds(const Bucket& bucket) const {
  return std::any_of(bucket.holders.begin(), bucket.holders.end(), [&](PlacementId p) { return mine(p); });
}

int32_t ProgramBuilder::emit_stage(NodeId id, Opcode opcode, size_t stage, int32_t from, int32_t to, std::vector<int32_t> waits) {
  const Node& node = dag_.node(id);
  Instruction in;
  in.opcode = opcode;
  in.stream = stream(node.stream, StreamKind::kCollective, node.stream);
  in.source = sources_.add(node.span);
  in.tensor = dag_.buckets[node.bucket.index()].name + (opcode == Opcode::kAllGather ? " params" : " grads");
  in.ranges = {whole(from, Access::kRead), whole(to, opcode == Opcode::kAdd ? Access::kReadWrite : Access::kWrite)};
  if (opcode != Opcode::kAdd) {
    const std::vector<int>& axes = dag_.buckets[node.bucket.index()].stages[stage].axes;
    GroupKey key{{node.placement}, {}};
    for (int axis : ir::spanned_axes(dag_.mesh, dag_.placements[node.placement.index()])) {
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) key.apart.push_back(axis);
    }
    in.group = group_index(key);
    in.tag = id.value;
  }
  return emit(std::move(in), std::move(waits));
}

void ProgramBuilder::emit_reduce_scatter(NodeId id) {
  const Node& node = dag_.node(id);
  const size_t b = node.bucket.index();
  const Bucket& bucket = dag_.buckets[b];
  if (!node.per_run) {
    emit_stage(id, Opcode::kReduceScatter, bucket.depth(2), gradient_home(b), final_gradient(b));
    return;
  }
  const bool first = scattered_.insert(node.bucket).second;
  int32_t from = run_gradient(id), last = -1;
  for (size_t stage = bucket.depth(4); stage < bucket.depth(2); ++stage) {
    const bool home = first && stage + 1 == bucket.depth(2);
    const int32_t to = home ? gradient_home(b)
                            : bucket_buffer(b, BufferKind::kGradient, fmt::format("grads of {}.{}", id.value, stage), stage + 1, false);
    last = emit_stage(id, Opcode::kReduceScatter, stage, from, to);
    from = to;
  }
  if (!first) last = emit_stage(id, Opcode::kAdd, 0, from, gradient_home(b));
  scatters_.push_back(last);
}

void ProgramBuilder::emit_all_gather(NodeId id) {
  const Node& node = dag_.node(id);
  const size_t b = node.bucket.index();
  const Bucket& bucket = dag_.buckets[b];
  if (node.per_run) {
    std::vector<int32_t> waits;
    for (NodeId in : node.inputs) {
      if (const auto it = last_of_.find(in); it != last_of_.end()) waits.push_back(it->second);
    }
    emit_stage(id, Opcode::kAllGather, bucket.depth(4), params_home(b), gathered(id), std::move(waits));
    return;
  }
  int32_t from = master(b);
  for (size_t stage = bucket.depth(1); stage-- > bucket.depth(3);) {
    // Of its own, so that the gradients of a step are there until the next.
    const int32_t to = stage == bucket.depth(3) ? params_home(b)
                                                : bucket_buffer(b, BufferKind::kParameter, fmt::format("params of stage {}", stage), stage);
    emit_stage(id, Opcode::kAllGather, stage, from, to);
    from = to;
  }
}

void ProgramBuilder::emit_all_reduce(NodeId id) {
  const Node& node = dag_.node(id);
  const bool all = node.holders.empty();
  if (!all && std::none_of(node.holders.begin(), node.holders.end(), [&](PlacementId p) { return mine(p); })) return;
  Instruction in;
  in.opcode = Opcode::kAllReduce;
  in.stream = stream(node.stream, StreamKind::kCollective, node.stream);
  in.group = group_index({node.holders, node.apart});
  in.tag = id.value;
  in.source = sources_.add(node.span);
  if (node.bucket.valid()) {
    in.dtype = ir::DType::kF32;
    in.ranges = {whole(final_gradient(node.bucket.index()), Access::kReadWrite)};
    in.tensor = dag_.buckets[node.bucket.index()].name + " grads";
  } else if (node.loss_term >= 0) {
    in.dtype = ir::DType::kF64;
    in.ranges = {{valid_, static_cast<int64_t>(node.loss_term) * 8, 8, 0, Access::kReadWrite}};
    in.tensor = fmt::format("valid {}", node.loss_term);
  } else {
    in.dtype = ir::DType::kF64;
    in.ranges = {whole(stats_, Access::kReadWrite)};
    in.tensor = "stats";
  }
  emit(std::move(in));
}

void ProgramBuilder::emit_norm() {
  for (size_t b = 0; b < dag_.buckets.size(); ++b) {
    const Bucket& bucket = dag_.buckets[b];
    if (!bucket.trainable || bucket.statistics || !holds(bucket)) continue;
    Instruction in;
    in.opcode = Opcode::kNorm;
    in.stream = stream(kComputeStream, StreamKind::kCompute, kComputeStream);
    // Every shard is held by so many devices.
    in.scale = static_cast<double>(bucket.degree()) / static_cast<double>(passes::holder_count(dag_, bucket));
    in.ranges = {whole(final_gradient(b), Access::kRead), whole(stats_, Access::kReadWrite)};
    in.tensor = bucket.name + " grads";
    emit(std::move(in));
  }
}

int ProgramBuilder::optimizer_states() const {
  const ir::Optimizer& o = strategy_.train.optimizer;
  if (o.kind == ir::Optimizer::Kind::kSgd) return o.momentum != 0 ? 1 : 0;
  return 2;
}

const char* ProgramBuilder::optimizer_state_name(int i) const {
  if (strategy_.train.optimizer.kind == ir::Optimizer::Kind::kSgd) return "momentum";
  return i == 0 ? "exp_avg" : "exp_avg_sq";
}

void ProgramBuilder::emit_update(const Node& node) {
  const size_t b = node.bucket.index();
  const Bucket& bucket = dag_.buckets[b];
  if (!holds(bucket)) return;
  Instruction in;
  in.opcode = Opcode::kUpdate;
  in.stream = stream(kComputeStream, StreamKind::kCompute, kComputeStream);
  in.update = static_cast<int32_t>(b);
  if (bucket.depth(1) > 0) in.segment = shard_index({b, bucket.depth(1)});
  in.tensor = bucket.name;
  in.ranges = {whole(master(b), Access::kReadWrite), whole(final_gradient(b), Access::kRead)};
  for (int i = 0; i < optimizer_states() && !bucket.statistics; ++i) {
    in.ranges.push_back(whole(bucket_buffer(b, BufferKind::kOptimizer, optimizer_state_name(i), bucket.depth(1)), Access::kReadWrite));
  }
  in.ranges.push_back(whole(stats_, Access::kRead));
  emit(std::move(in));
}

void ProgramBuilder::add_homes() {
  for (size_t b = 0; b < dag_.buckets.size(); ++b) {
    const Bucket& bucket = dag_.buckets[b];
    if (!holds(bucket)) continue;
    int32_t lowest = INT32_MAX;
    for (PlacementId p : bucket.holders) lowest = std::min(lowest, ir::rank_at(dag_.mesh, dag_.placements[p.index()], 0));
    const bool owner = lowest == class_.first_rank;
    const int32_t shard = bucket.depth(3) > 0 ? shard_index({b, bucket.depth(3)}) : -1;
    for (size_t i = 0; i < bucket.params.size(); ++i) {
      program_.params.push_back({bucket.params[i].value, params_home(b), bucket.offsets[i] * 4, owner, shard});
      if (bucket.depth(1) == bucket.depth(3)) continue;
      program_.params.push_back({bucket.params[i].value, master(b), bucket.offsets[i] * 4, false, shard_index({b, bucket.depth(1)})});
    }
  }
}

}  // namespace piper::codegen
