// Plan: what the compiler writes and the runtime, the verifier and the simulator read. Plain structs; plan.proto is
// the file format and plan_io.h converts. A plan knows tensors, streams, groups and instructions, no strategies.
//
// One Program per class of ranks that do the same work. Ranks of a class differ only in their RankEntry: peers, groups,
// which samples of the global batch they hold. Everything is addressed by dense indices.
//
// Sizes depend on a rank's samples: an Extent is `fixed + per_sample * n` elements for n local samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/attributes.h"
#include "ir/types.h"

namespace piper::plan {

inline constexpr int32_t kFormatVersion = 2;
// Every arena offset and every parameter in a bucket starts at a multiple of this many bytes.
inline constexpr int64_t kAlignment = 64;

using ir::DType;

// ---- Kernel lists of chunks ----

// A tensor of a kernel call: `offset` bytes into a slot of the chunk.
struct Operand {
  int32_t slot = -1;  // -1: absent optional input
  int64_t offset = 0;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  friend bool operator==(const Operand&, const Operand&) = default;
};

struct KernelCall {
  std::string op;  // canonical op, a row of ops.def
  ir::Attrs attrs;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  std::string path;  // module path in the model, for humans
  friend bool operator==(const KernelCall&, const KernelCall&) = default;
};

enum class Access : uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3 };

// What an instruction must bind: one buffer range per slot.
struct Slot {
  std::string name;
  Access access = Access::kRead;
  friend bool operator==(const Slot&, const Slot&) = default;
};

// The kernels of a chunk for one local batch size.
struct KernelList {
  int64_t samples = 0;  // local samples; 0 when nothing in the chunk depends on them
  std::vector<KernelCall> calls;
  std::vector<int64_t> slot_bytes;  // bytes used of each slot
  friend bool operator==(const KernelList&, const KernelList&) = default;
};

struct Chunk {
  std::string name;  // "F stage=0", for humans and traces
  std::vector<Slot> slots;
  std::vector<KernelList> variants;  // by ascending samples
  uint64_t hash = 0;                 // of the canonical ops, see Contract
  int64_t flops_per_sample = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

// ---- Memory ----

enum class BufferKind : uint8_t {
  kParameter, kGradient, kOptimizer, kActivation, kCommunication, kInput, kConstant, kScratch, kStats,
};
std::string buffer_kind_name(BufferKind kind);

struct Buffer {
  std::string name;
  BufferKind kind = BufferKind::kActivation;
  DType dtype = DType::kF32;
  int64_t offset = 0;  // bytes in the arena
  int64_t bytes = 0;
  bool persistent = false;  // lives across steps (parameters, gradients, state, constants, stats)
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

// A part of a buffer: elements [offset, offset + extent(n)).
struct BufferRange {
  int32_t buffer = -1;
  int64_t offset = 0;      // bytes from the buffer's start
  int64_t fixed = 0;       // bytes that do not depend on the samples
  int64_t per_sample = 0;  // bytes per local sample
  Access access = Access::kRead;
  int64_t bytes(int64_t samples) const { return fixed + per_sample * samples; }
  friend bool operator==(const BufferRange&, const BufferRange&) = default;
};

// ---- Instructions ----

enum class Opcode : uint8_t {
  kCompute,    // run a chunk's kernels; ranges bind its slots in order
  kSend,       // range 0 to a peer
  kRecv,       // range 0 from a peer
  kAllReduce,  // range 0 in place over a group
  kReduceScatter, kAllGather,
  kAllToAll,   // of two ranges: equal parts of range 0 to the members, theirs into range 1. Of four: rows of `row_bytes`,
               // of which ranges 2 and 3 (i64, equal parts for the members) say how many go to each member and come from
               // each; they lie one after another in ranges 0 and 1, and what is left of range 1 becomes zero
  kBroadcast,
  kZero,       // fill range 0 with zero bytes
  kCopy,       // range 1 := range 0
  kLoadBatch,  // fill range 0 with input `input` for the samples of microbatch `microbatch`
  kNorm,       // stats[0] += scale * sum of squares of ranges 0..k-2 (f32), stats[1] += scale * count of non-finite; the
               // last range is stats
  kUpdate,     // optimizer step of one bucket, or advance of its statistics: ranges param, grad, states..., stats
  kAdd,        // range 1 += range 0, f32
  kWaitHost,   // the host reads range 0 (i64) and fails the step where its numbers add up to more than `limit`
};
std::string opcode_name(Opcode opcode);

enum class StreamKind : uint8_t { kCompute, kSend, kRecv, kCollective, kLoad };

// A queue of instructions in order; queues run side by side.
struct Stream {
  std::string name;     // "compute", "p2p>1 act", "reduce"
  StreamKind kind = StreamKind::kCompute;
  std::string logical;  // the strategy's stream it belongs to
  bool high_priority = false;
  friend bool operator==(const Stream&, const Stream&) = default;
};

struct Instruction {
  Opcode opcode = Opcode::kCompute;
  int32_t stream = 0;
  std::vector<int32_t> waits;  // earlier instructions of this program, on other streams, that must have completed
  std::vector<BufferRange> ranges;
  int32_t chunk = -1;       // kCompute: index into Plan::chunks
  int32_t microbatch = -1;  // of the instruction, -1 when it belongs to the whole step
  int32_t share = -1;       // which of RankEntry::shares gives the samples, -1: sizes are fixed
  int32_t peer = -1;        // kSend, kRecv: index into RankEntry::peers
  int32_t piece = -1;       // kSend, kRecv: index into RankEntry::pieces, -1: the whole local microbatch
  int32_t group = -1;       // collectives: index into RankEntry::groups
  int32_t tag = 0;          // kSend, kRecv: channel and message; equal on both sides, unique per (peer pair) and step
  int32_t input = -1;       // kLoadBatch: index into Plan::inputs
  int32_t update = -1;      // kUpdate: index into Plan::updates
  int32_t segment = -1;       // kUpdate: index into RankEntry::segments, what of the bucket the ranges hold; -1: all of it
  int64_t row_bytes = 0;    // kAllToAll of counted rows
  int64_t limit = 0;        // kWaitHost
  double scale = 1;         // kNorm: 1 / number of ranks that hold the ranges, so that the sum over ranks counts each once
  DType dtype = DType::kF32;  // element type for reductions
  std::string tensor;         // what travels or is reduced, for humans and for matching
  int32_t source = -1;        // index into Plan::sources: the strategy line that asked for it
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// A tensor of the model in a program: which bytes of which buffer hold it.
struct ParamHome {
  int32_t param = -1;   // index into Plan::params
  int32_t buffer = -1;  // of kind kParameter
  int64_t offset = 0;   // bytes; of a home in a segment: from the bucket's start, of which the buffer holds a part
  bool owner = false;   // this class saves it (its lowest rank does, or those that together have all segments)
  int32_t segment = -1;   // index into RankEntry::segments, -1: the buffer holds the whole bucket
  friend bool operator==(const ParamHome&, const ParamHome&) = default;
};

struct Program {
  std::string name;  // "pp=0", for humans
  std::vector<Stream> streams;
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;  // in issue order: a projection of one global order
  std::vector<ParamHome> params;
  std::vector<std::pair<int32_t, int32_t>> constants;  // (index into Plan::constants, buffer)
  int32_t stats_buffer = -1;
  int64_t arena_bytes = 0;  // exact
  friend bool operator==(const Program&, const Program&) = default;
};

// ---- Tables ----

// The samples of one microbatch that a rank holds: [start, start + count) of the global batch of the step.
struct Share {
  int64_t start = 0;
  int64_t count = 0;
  friend bool operator==(const Share&, const Share&) = default;
};

// A contiguous part of the local microbatch, in samples, for a transfer between placements of different width.
struct Piece {
  int64_t offset = 0;
  int64_t count = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

// The part of a bucket that a rank holds, in elements: [start, start + count).
struct Segment {
  int64_t start = 0;
  int64_t count = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct RankEntry {
  int32_t program = 0;
  std::vector<int64_t> coordinates;  // on the mesh
  std::vector<int32_t> peers;        // ranks
  std::vector<int32_t> groups;       // indices into Plan::groups
  std::vector<std::vector<Share>> shares;  // [share][microbatch]
  std::vector<Piece> pieces;
  std::vector<Segment> segments;
  friend bool operator==(const RankEntry&, const RankEntry&) = default;
};

struct Group {
  std::string name;  // "dp @ pp=0"
  std::vector<int32_t> ranks;  // ascending
  friend bool operator==(const Group&, const Group&) = default;
};

enum class InitKind : uint8_t { kFromModel, kNormal, kUniform, kConstant };

struct Param {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // as the kernels read it
  bool trainable = true;
  bool statistics = false;     // not trained, but advanced by every step: value := kept * value + sum of contributions
  double kept = 0;
  bool transposed = false;     // the name's own layout is the transpose of `shape`
  std::string initializer;     // in the model file, for kFromModel
  InitKind init = InitKind::kFromModel;
  double init_a = 0, init_b = 1;
  friend bool operator==(const Param&, const Param&) = default;
};

struct ConstantData {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  friend bool operator==(const ConstantData&, const ConstantData&) = default;
};

struct Input {
  std::string name;  // as in the graph, or the loss's target
  DType dtype = DType::kF32;
  std::vector<int64_t> sample_shape;  // without the batch dim
  bool is_target = false;
  int64_t vocabulary = 0;  // > 0: integer values must be in [0, vocabulary) (or ignore_index for targets)
  int64_t ignore_index = 0;
  bool has_ignore_index = false;
  friend bool operator==(const Input&, const Input&) = default;
};

struct LossTerm {
  std::string name;
  double weight = 1;
  // Positions in the stats buffer (f64): sum over the valid elements, and their number.
  int32_t sum_index = -1;
  int32_t count_index = -1;
  friend bool operator==(const LossTerm&, const LossTerm&) = default;
};

enum class OptimizerKind : uint8_t { kSgd, kAdam, kAdamW };
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool nesterov = false;
  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};
enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine };
struct LrScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t warmup = 0, total = 0;
  double floor = 0;
  friend bool operator==(const LrScheduleConfig&, const LrScheduleConfig&) = default;
};

// One update: runs of elements of a bucket with equal weight decay, or equal `kept`.
struct UpdateRun {
  int64_t begin = 0;  // elements from the bucket range's start
  int64_t end = 0;
  bool decay = true;
  double kept = 0;  // of an update of statistics
  friend bool operator==(const UpdateRun&, const UpdateRun&) = default;
};
struct Update {
  std::string name;
  std::vector<UpdateRun> runs;
  bool statistics = false;  // no optimizer: value := kept * value + gradient; no states, and no part of the norm
  friend bool operator==(const Update&, const Update&) = default;
};

// What the step has to compute, written by the compiler before any transformation; the verifier compares.
struct Contribution {
  int32_t param = -1;
  int32_t chunk = -1;  // model chunk, index into Contract::chunk_hashes
  friend bool operator==(const Contribution&, const Contribution&) = default;
};
struct Contract {
  std::vector<uint64_t> chunk_hashes;  // forward ops of each model chunk
  std::vector<std::string> chunk_names;
  std::vector<Contribution> contributions;
  std::vector<double> loss_weights;
  int32_t microbatches = 1;
  friend bool operator==(const Contract&, const Contract&) = default;
};

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

struct Plan {
  int32_t version = kFormatVersion;
  std::string device = "cpu";
  std::string model_file;  // as given to the compiler, for humans and as the first place to look
  uint64_t model_hash = 0;
  uint64_t strategy_hash = 0;
  std::string strategy_file;
  std::string strategy_text;
  std::vector<MeshAxis> mesh;
  int64_t batch = 1;
  int32_t microbatches = 1;
  uint64_t seed = 0;

  std::vector<Param> params;
  std::vector<ConstantData> constants;
  std::vector<Input> inputs;
  std::vector<LossTerm> loss;
  int32_t stats_count = 2;  // f64 elements of the stats buffer: [sum of squares, non-finite count, loss sums and counts]
  OptimizerConfig optimizer;
  LrScheduleConfig schedule;
  double clip_norm = 0;  // 0: no clipping
  bool skip_nonfinite = true;
  std::vector<Update> updates;

  std::vector<Chunk> chunks;
  std::vector<Program> programs;
  std::vector<RankEntry> ranks;
  std::vector<Group> groups;
  std::vector<std::string> sources;  // "strategies/1f1b.piper:21: replicate all() over dp"
  Contract contract;

  int world_size() const { return static_cast<int>(ranks.size()); }
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Samples that `instruction` of rank `rank` works on; 0 when its sizes are fixed.
int64_t samples_of(const Plan& plan, int rank, const Instruction& instruction);
// Variant of a chunk for that many samples (the only one when the chunk does not depend on them).
const KernelList& variant_of(const Chunk& chunk, int64_t samples);
// Bytes of a range of an instruction, with its piece applied for transfers; and the byte offset within its buffer.
int64_t range_bytes(const Plan& plan, int rank, const Instruction& instruction, const BufferRange& range);
int64_t range_offset(const Plan& plan, int rank, const Instruction& instruction, const BufferRange& range);

}  // namespace piper::plan
