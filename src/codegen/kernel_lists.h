// The kernels of a chunk's forward or backward with every tensor given a place: a boundary value, a parameter in its
// bucket, a saved value in the chunk's pack, or scratch that only lives inside the chunk.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "ir/dag.h"
#include "plan/plan.h"

namespace piper::codegen {

// What a slot of a chunk is bound to by an instruction.
struct SlotRef {
  enum class Kind : uint8_t {
    kBoundary,  // `value`, of the instruction's microbatch and placement
    kData,      // graph input or target `value`
    kParam,     // parameters of bucket `index`
    kGrad,      // gradients of bucket `index`
    kConstant,  // model constant `index`
    kSaved,     // what the forward keeps for the backward; `index` 1: what the weight half of a split one reads
    kCarried,   // what the input half of a split backward keeps for the weight half
    kScratch,
    kStats,     // the statistics of the step
    kValid,     // valid elements per loss term, of the whole batch
  };
  Kind kind = Kind::kScratch;
  ir::ValueId value;
  int32_t index = -1;
  friend auto operator<=>(const SlotRef&, const SlotRef&) = default;
};

// Bytes at an offset of a slot.
struct Location {
  SlotRef slot;
  int64_t offset = 0;
};

// One chunk (or a part of one) ready for the plan, with what its slots are.
struct LoweredChunk {
  plan::Chunk code;
  std::vector<SlotRef> slots;
};

// Lowers the chunks of a DAG. Layouts of forward and backward belong together: the backward reads what the forward saved.
class ChunkLowering {
 public:
  // `sizes`: the distinct numbers of local samples, ascending.
  ChunkLowering(const ir::TrainingDag& dag, ir::ChunkId chunk, std::vector<int64_t> sizes);
  // A list of ops of its own whose results in `stats` are added to these places of the statistics.
  ChunkLowering(const ir::TrainingDag& dag, const ir::Chunk& ops, std::vector<int64_t> sizes, std::map<ir::ValueId, int32_t> stats);

  // One per part of the forward, like all lists below.
  std::vector<LoweredChunk> forward();
  // The backward: one per part, without calls where a part has nothing to do.
  std::vector<LoweredChunk> backward();
  // The two halves of a split backward: gradients of inputs, and of weights. Once, and not together with backward().
  struct Halves {
    std::vector<LoweredChunk> inputs, weights;
  };
  Halves split_backward();

  int64_t saved_bytes(size_t pack) const { return saved_bytes_[pack]; }  // of the largest size
  int64_t scratch_bytes() const { return scratch_bytes_; }  // of the largest size, forward and backward
  int64_t carried_bytes() const { return carried_bytes_; }  // of the largest size

 private:
  struct Call {
    const ir::Op* op = nullptr;
    uint32_t accumulate = 0;            // outputs that add to their place
    bool copy = false;                  // an alias that needs a tensor of its own: copies its input
    size_t at = 0;                      // index of the op in its pass
    std::vector<ir::ValueId> inputs, outputs;
    ir::ValueId accumulate_from;        // valid: `place += value` (no op)
    Location accumulate_into;
  };

  ir::ValueId root(ir::ValueId v) const;
  std::vector<Call> collect_calls(const std::vector<ir::OpId>& ops, const std::set<ir::ValueId>& pinned);
  void place_forward_values();
  void place_gradients(const std::vector<Call>& calls);
  void fuse_accumulations(std::vector<Call>& calls, const std::vector<std::pair<ir::ParamId, ir::ValueId>>& gradients,
                          const std::vector<Call>& others);
  void place_carried(const std::vector<Call>& inputs, const std::vector<Call>& weights);
  std::vector<LoweredChunk> cut(const std::vector<Call>& calls, const std::vector<ir::Part>& parts, const char* pass) const;
  Location locate(ir::ValueId v, size_t size_index) const;
  void plan_scratch(const std::vector<Call>& calls);
  LoweredChunk finish(const std::vector<Call>& calls, std::string name) const;
  void add_call(const Call& call, size_t size_index, plan::KernelList& list, std::vector<SlotRef>& slots,
                std::vector<plan::Slot>& plan_slots) const;
  Location param_location(ir::ParamId param, SlotRef::Kind kind) const;

  const ir::TrainingDag& dag_;
  const ir::Chunk& chunk_;
  std::vector<int64_t> sizes_;
  std::map<ir::ValueId, int32_t> stats_;                // values that are sums over the step: index into the statistics
  std::map<ir::ValueId, ir::ValueId> alias_;            // value -> value whose memory it is
  std::map<ir::ValueId, std::vector<Location>> places_;  // root -> location per size; absent: scratch_
  std::map<ir::ValueId, std::vector<int64_t>> scratch_;  // root -> offset per size
  std::vector<Call> forward_calls_;
  std::array<int64_t, 2> saved_bytes_{};
  int64_t scratch_bytes_ = 0;
  int64_t carried_bytes_ = 0;
};

// Hash of a chunk's forward ops as the model has them: its identity in the contract of the step.
uint64_t chunk_hash(const ir::TrainingDag& dag, const ir::Chunk& chunk);

// Positions in the statistics: [0] sum of squares, [1] non-finite, then sum and count per loss term.
inline int32_t loss_sum_index(size_t term) { return static_cast<int32_t>(2 + 2 * term); }
inline int32_t loss_count_index(size_t term) { return static_cast<int32_t>(3 + 2 * term); }

int64_t align(int64_t bytes);

}  // namespace piper::codegen
