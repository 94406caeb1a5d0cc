// Builds the program of one class of ranks: streams, buffers, instructions in the global order, and the waits that follow
// from what instructions read and write.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/classes.h"
#include "codegen/kernel_lists.h"
#include "ir/dag.h"
#include "ir/strategy.h"
#include "plan/plan.h"

namespace piper::codegen {

// Index into Plan::sources for a span; adds it when it is new.
class SourceTable {
 public:
  SourceTable(plan::Plan& plan, const support::SourceMap& sources) : plan_(plan), sources_(sources) {}
  int32_t add(support::SourceSpan span);

 private:
  plan::Plan& plan_;
  const support::SourceMap& sources_;
  std::map<std::pair<int32_t, int32_t>, int32_t> index_;
};

// Chunks in the plan, lowered once per (chunk, pass, data degree of the placement).
struct LoweredPass {
  std::vector<int32_t> chunks;               // indices into Plan::chunks
  std::vector<std::vector<SlotRef>> slots;   // of each
};
struct LoweredPasses {
  LoweredPass forward;
  LoweredPass backward;         // whole, when some microbatch has it so
  LoweredPass inputs, weights;  // split, when some microbatch has it so
  std::array<int64_t, 2> saved_bytes{};
  int64_t carried_bytes = 0;
  int64_t scratch_bytes = 0;
};

class ChunkTable {
 public:
  ChunkTable(const ir::TrainingDag& dag, plan::Plan& plan, int64_t batch);
  const LoweredPasses& get(ir::ChunkId chunk, ir::PlacementId placement);
  const LoweredPasses& count(size_t term, ir::PlacementId placement);
  // Distinct numbers of local samples on a placement, ascending.
  std::vector<int64_t> sizes(ir::PlacementId placement) const;

 private:
  LoweredPass add(std::vector<LoweredChunk> parts);

  const ir::TrainingDag& dag_;
  plan::Plan& plan_;
  int64_t batch_;
  std::vector<char> whole_, split_;  // per chunk: whether some microbatch has its backward so
  std::map<std::pair<ir::ChunkId, int64_t>, LoweredPasses> passes_;  // by data degree
  std::map<std::pair<size_t, int64_t>, LoweredPasses> counts_;
};

// Ranks of the union of placements (none: all ranks) that have a rank's coordinates on the axes `apart`.
struct GroupKey {
  std::vector<ir::PlacementId> holders;
  std::vector<int> apart;
  friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
};

// The part of a bucket that its first `depth` stages leave to a rank.
struct ShardKey {
  size_t bucket = 0;
  size_t depth = 0;
  friend auto operator<=>(const ShardKey&, const ShardKey&) = default;
};

// The keys of the per-rank tables that a program refers to.
struct ProgramTables {
  std::vector<TransferKey> peers;
  std::vector<TransferKey> pieces;
  std::vector<GroupKey> groups;
  std::vector<ShardKey> shards;
};

inline constexpr const char* kComputeStream = "compute";

class ProgramBuilder {
 public:
  ProgramBuilder(const ir::TrainingDag& dag, const ir::Strategy& strategy, const RankClass& rank_class, plan::Plan& plan,
                 ChunkTable& chunks, Transfers& transfers, SourceTable& sources);

  // Emits everything and plans the memory. `inputs[v]`: index into Plan::inputs; `constants[c]`: into Plan::constants.
  plan::Program build(const std::map<ir::ValueId, int32_t>& inputs, const std::map<int32_t, int32_t>& constants);
  const ProgramTables& tables() const { return tables_; }

 private:
  bool mine(ir::PlacementId placement) const;
  int32_t share_of(ir::PlacementId placement) const;

  // Streams and buffers are made on first use.
  int32_t stream(const std::string& name, plan::StreamKind kind, const std::string& logical);
  int32_t buffer(const std::string& key, plan::BufferKind kind, ir::DType dtype, int64_t bytes, bool persistent);
  int32_t boundary_buffer(ir::ValueId value, int32_t mb, ir::PlacementId placement, plan::BufferKind kind);
  // Buffers of buckets, each of the size that the first `depth` stages leave.
  int32_t bucket_buffer(size_t bucket, plan::BufferKind kind, const std::string& what, size_t depth, bool persistent = true);
  int32_t params_home(size_t bucket);    // of the kernels, or the shards that are gathered for them
  int32_t master(size_t bucket);         // what the optimizer updates
  int32_t gradient_home(size_t bucket);  // where gradients add up over the step
  int32_t final_gradient(size_t bucket); // what the optimizer reads
  int32_t gathered(ir::NodeId gather);   // of an all-gather for a run
  int32_t run_gradient(ir::NodeId scatter);  // of a run of backwards; zero before its first
  plan::BufferRange whole(int32_t buffer, plan::Access access) const;
  plan::BufferRange tensor_range(int32_t buffer, const ir::TensorType& type, plan::Access access) const;
  plan::BufferRange bind(const SlotRef& slot, plan::Access access, ir::NodeId id, const LoweredPasses& passes);
  plan::BufferRange bind_params(size_t bucket, plan::Access access, const ir::Node& node);
  plan::BufferRange bind_gradients(size_t bucket, plan::Access access, ir::NodeId id);

  int32_t emit(plan::Instruction instruction, std::vector<int32_t> extra_waits = {});
  void emit_prologue();
  void emit_load(ir::ValueId value, int32_t mb, ir::PlacementId placement);
  void emit_compute(ir::NodeId id);
  void emit_transfers(ir::NodeId id);
  int32_t emit_transfer(ir::NodeId id, const TransferKey& key, int32_t buffer);  // the stream
  void emit_all_reduce(ir::NodeId id);
  void emit_reduce_scatter(ir::NodeId id);
  void emit_all_gather(ir::NodeId id);
  void emit_all_to_all(ir::NodeId id);
  void emit_wait_host(ir::NodeId id);
  // One collective over the axes of a stage, or an addition, on a stream of collectives.
  int32_t emit_stage(ir::NodeId id, plan::Opcode opcode, size_t stage, int32_t from, int32_t to, std::vector<int32_t> waits = {});
  void emit_zero(int32_t buffer, std::string tensor, std::vector<int32_t> waits = {});
  void find_runs();
  void emit_norm();
  void emit_update(const ir::Node& node);
  void emit_node(ir::NodeId id);
  // Waits of a new buffer's first writer: it may start when the compute before the last has ended, so that memory is
  // reused and still one transfer runs ahead.
  std::vector<int32_t> throttle() const;
  // Waits of a compute for sends that were issued before the compute before the last, so that their buffers are free.
  std::vector<int32_t> old_sends() const;
  int32_t group_index(const GroupKey& key);
  int32_t shard_index(const ShardKey& key);
  bool holds(const ir::Bucket& bucket) const;
  void add_homes();
  const char* optimizer_state_name(int i) const;
  int optimizer_states() const;

  const ir::TrainingDag& dag_;
  const ir::Strategy& strategy_;
  const RankClass& class_;
  plan::Plan& plan_;
  ChunkTable& chunks_;
  Transfers& transfers_;
  SourceTable& sources_;
  ProgramTables tables_;
  plan::Program program_;
  const std::map<ir::ValueId, int32_t>* inputs_ = nullptr;
  const std::map<int32_t, int32_t>* constants_ = nullptr;
  std::map<std::string, int32_t> stream_index_, buffer_index_;
  std::set<std::tuple<ir::ValueId, int32_t, ir::PlacementId>> loaded_;
  int32_t stats_ = -1, valid_ = -1;
  std::vector<int32_t> computes_;             // instructions on the compute stream, of chunks
  std::map<ir::NodeId, int32_t> last_of_;     // last instruction of a compute node
  std::map<std::pair<ir::NodeId, ir::BucketId>, ir::NodeId> run_of_;  // the reduction of a compute's gradients
  std::set<ir::BucketId> scattered_;          // buckets whose gradient home has a first sum
  std::set<ir::NodeId> begun_;                // reductions whose run has begun
  std::vector<int32_t> scatters_;             // reductions of runs, in order
  std::vector<std::vector<int32_t>> sends_;   // per stream
  // Hazards, per buffer: its last writer and the readers since.
  std::vector<int32_t> writer_;
  std::vector<std::vector<int32_t>> readers_;
  // Happens-before: per instruction and stream, how many instructions of that stream have surely ended before it starts.
  std::vector<std::vector<int32_t>> clock_;
  std::vector<int32_t> position_;             // of an instruction in its stream, from 1
  std::vector<int32_t> last_on_stream_;
};

}  // namespace piper::codegen
