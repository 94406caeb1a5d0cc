// TrainingDag: everything a training step computes and communicates, on all devices, as one graph.
//
// Nodes are stored once per placement (a set of devices that run them together, SPMD), never once per device.
// The passes of src/passes fill it step by step; the comment at each member says which pass writes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/model.h"
#include "ir/strategy.h"
#include "support/ids.h"
#include "support/source.h"

namespace piper::ir {

PIPER_ID(ChunkId);
PIPER_ID(NodeId);
PIPER_ID(PlacementId);
PIPER_ID(BucketId);

using Tags = std::map<std::string, int64_t>;
std::string to_string(const Tags& tags);  // "stage=0, mb=2"

// A gradient that arrives at a chunk for one of its outputs, computed by one consumer chunk.
struct GradientIn {
  ValueId value;       // the output
  ChunkId consumer;
  ValueId gradient;    // what the consumer computed
};

// Operations of a pass of a chunk that run without a collective between them: [begin, end) of the pass's list.
struct Part {
  size_t begin = 0, end = 0;
  std::vector<BucketId> reads;  // buckets whose parameters are gathered for it, ascending
  std::vector<BucketId> adds;   // buckets to whose gradients it adds, ascending
};

// A region of operations with equal tags at equal depth: the unit that is scheduled.
struct Chunk {
  std::string name;  // "stage=0", made unique with a suffix when several chunks have equal tags
  Tags tags;
  int32_t depth = 0;
  std::vector<OpId> forward;   // topological. annotate
  std::vector<OpId> backward;  // gradient ops, topological. build
  std::vector<OpId> weight_backward;  // those of `backward` that no gradient of an input needs. split_backward
  std::vector<ValueId> inputs;       // computed by other chunks. annotate
  std::vector<ValueId> outputs;      // read by other chunks, or graph outputs nobody reads are dropped. annotate
  std::vector<ValueId> data;         // graph inputs and targets that the forward reads
  std::vector<ParamId> params;       // that the forward reads, in order of first use
  std::vector<GradientIn> gradients_in;                      // build
  std::vector<std::pair<ValueId, ValueId>> gradients_out;    // (input, its gradient). build
  std::vector<std::pair<ParamId, ValueId>> param_gradients;  // contributions; a parameter used twice has two. build
  std::vector<int32_t> loss_terms;   // whose loss op is in the forward
  // In how many segments the backward computes the forward again; 0: it reads what the forward kept. recompute
  int32_t recomputed_segments = 0;
  std::vector<ValueId> kept;  // with segments: what the forward keeps for them beside its inputs. recompute
  // Its operations have the rows of so many samples, whatever a device's share of the batch; 0: those of the share. shard
  int64_t samples = 0;
  // Parts of F, B, I and W. bucket
  std::vector<Part> forward_parts, backward_parts, input_parts, weight_parts;
};

// The two halves of a split backward: operations, and the contributions that they make.
struct Halves {
  std::vector<OpId> inputs;  // those of the weights are Chunk::weight_backward
  std::vector<std::pair<ParamId, ValueId>> input_gradients, weight_gradients;
};
Halves halves_of(const Model& model, const Chunk& chunk);

// Devices with some mesh coordinates fixed, spanning the others.
struct Placement {
  std::vector<std::pair<int, int64_t>> fixed;  // sorted by axis; axes of size 1 are always fixed at 0
  std::string name;                            // "pp=0", "dev" when nothing is fixed
};

enum class NodeKind : uint8_t {
  kCompute,    // F, B of a chunk, or a count of valid targets
  kUpdate,     // optimizer step of a bucket
  kSend,       // a value between two placements; its receive is the next node
  kRecv,
  kAllReduce,  // of a bucket's gradients, of the counts, of the statistics
  kReduceScatter,  // of a bucket's gradients: every member keeps the sum of its shard
  kAllGather,      // of a bucket's parameters
  kAllToAll,       // an exchange
  kWaitHost,       // the host reads the counts of an exchange
  kNorm,       // sums of squares of the reduced gradients
};

// A backward is one node (kBackward), or two: its gradients with respect to the chunk's inputs, and those with respect to
// its weights.
enum class Pass : uint8_t { kNone, kCount, kForward, kBackward, kInputGrad, kWeightGrad, kUpdate };
inline bool is_backward(Pass pass) { return pass == Pass::kBackward || pass == Pass::kInputGrad || pass == Pass::kWeightGrad; }
std::string_view pass_letter(Pass pass);  // "F", "B", "I", "W", "U", "C"

struct Node {
  NodeKind kind = NodeKind::kCompute;
  Pass pass = Pass::kNone;
  ChunkId chunk;
  int32_t microbatch = -1;
  int32_t loss_term = -1;      // of a count and of its all-reduce
  int32_t part = -1;           // of a compute node that is one of its pass's parts; -1: all of them. replicate
  PlacementId placement;       // where it runs. place
  BucketId bucket;             // of an update or a collective over a bucket
  bool per_run = false;        // of a collective over a bucket: for a run of computes, not once per step
  ValueId value;               // of a send or receive
  PlacementId peer;            // of a send or receive: the other side
  ChunkId channel;             // of a send or receive: the chunk that computed the value
  bool gradient = false;       // of a send or receive: travels backward
  int32_t overlap = -1;        // of a compute node: the overlap group that hides its exchanges. order
  int32_t exchange = -1;       // of an all-to-all or a wait for counts: index into TrainingDag::exchanges
  std::string stream;          // logical stream of communication
  std::vector<PlacementId> holders;  // of an all-reduce: the union of these placements' devices; empty: all devices
  std::vector<int> apart;            // of an all-reduce: axes along which members are in groups of their own
  Tags tags;
  std::vector<NodeId> inputs;  // data edges: nodes whose results this one reads
  SourceSpan span;             // the directive that asked for it
};

// Axes over which a bucket is divided at a level of `zero`. A bucket is cut over the axes of its first stage, each part
// over those of the second, and so on.
struct ShardStage {
  int level = 1;           // 1: optimizer state; 2: and gradients; 3: and parameters; 4: for good, nobody needs all of it
  std::vector<int> axes;   // outer first
  int64_t degree = 1;      // product of their sizes
  friend bool operator==(const ShardStage&, const ShardStage&) = default;
};

// Parameters with equal holders, flattened into one buffer in backward order.
struct Bucket {
  std::string name;
  std::vector<ParamId> params;
  std::vector<int64_t> offsets;        // in elements, each a multiple of 16
  int64_t elements = 0;
  std::vector<PlacementId> holders;    // ascending
  bool trainable = true;               // updated by the optimizer, or by `statistics`
  bool statistics = false;             // running statistics: contributions are summed like gradients, and are none
  std::string stream;                  // of its reduction
  std::string gather_stream;
  std::vector<ShardStage> stages;      // by falling level; empty: whole on every holder
  // Of a divided parameter, which has a bucket of its own: elements of a part. The rest of what a device has is padding.
  int64_t part_elements = 0;
  int64_t prefetch = 0;                // gathered buckets ahead of their use
  SourceSpan span;

  // Number of stages of at least this level.
  size_t depth(int level) const;
  // In how many equal parts the first `depth` stages cut the bucket; without it, all.
  int64_t degree(size_t depth) const;
  int64_t degree() const { return degree(stages.size()); }
  // Whether computes need more of the parameters than a device keeps, or make more of the gradients.
  bool gathers() const { return depth(3) > depth(4); }
  bool scatters() const { return depth(2) > depth(4); }
};

// Operations between the way to experts and the way back. annotate
struct ExpertRegion {
  int32_t shard = -1;  // index into Strategy::shard_experts
  OpId route;
  std::string path;    // module path, for messages
};
// The tag that its operations have, with the region's number. No tag of a file can have this name.
inline constexpr const char* kExpertTag = "expert region";

// A parameter of which every coordinate of an axis has a part: equally many indices of its first dim, the last ones
// fewer. Operations see the part.
struct Division {
  TensorType whole;
  int axis = 0;
};

// A value that changes devices within its placement, each along one axis: numbers of rows, an equal part to each; or as
// many rows to each as those say.
struct Exchange {
  ValueId from, to;          // what a chunk makes, and what another one reads
  ValueId sent, received;    // counts of rows, [devices, .]; none of an exchange of counts
  int axis = 0;
  int64_t limit = 0;         // of counts: most rows that may come to a device
  std::string stream;
  std::string what;          // "rows of model.layers.0.mlp", for messages
  SourceSpan span;
};

// One term of the loss: weight * sum / count over the global batch.
struct LossInfo {
  std::string name;   // of the model's output that it comes from
  double weight = 1;
  ValueId sum;    // f64[1], accumulated over microbatches
  ValueId count;  // f64[1], valid elements of the global batch
  OpId loss_op;
  OpId count_op;
  ChunkId chunk;
};

// Orders of the strategy resolved: every node of `before` runs before every node of `after` on the devices they share.
struct OrderEdge {
  NodeId before, after;
  int32_t order = -1;  // index into Strategy::orders
};

struct Contribution {
  ParamId param;
  ChunkId chunk;
};

struct TrainingDag {
  explicit TrainingDag(Model m) : model(std::move(m)) {}

  Model model;  // with losses and gradients appended by build
  Mesh mesh;
  std::vector<Tags> op_tags;        // per op, of the tags that directives name. annotate
  std::vector<Chunk> chunks;        // in topological order. annotate
  std::vector<LossInfo> losses;     // the terms. annotate, build
  std::vector<Node> nodes;          // build and later
  std::vector<Contribution> contributions;  // the contract. build
  std::vector<ExpertRegion> regions;        // those that a directive divides. annotate
  std::map<ParamId, Division> divided;      // shard
  std::vector<Exchange> exchanges;          // shard
  // Running statistics that the step advances: r <- kept * r + sum of contributions. build
  std::map<ParamId, double> statistics;
  int32_t microbatches = 1;         // microbatch
  std::string split_dim = "mb";
  std::vector<Placement> placements;                // place
  std::vector<std::vector<PlacementId>> param_holders;  // per parameter. place
  std::vector<Bucket> buckets;      // bucket
  std::vector<OrderEdge> orders;    // order
  std::vector<NodeId> compute_order;  // one global order of the compute nodes. schedule_compute
  std::vector<NodeId> global_order;   // of all nodes; every stream of every rank is a projection of it. schedule

  Node& node(NodeId id) { return nodes[id.index()]; }
  const Node& node(NodeId id) const { return nodes[id.index()]; }
  Chunk& chunk(ChunkId id) { return chunks[id.index()]; }
  const Chunk& chunk(ChunkId id) const { return chunks[id.index()]; }
  NodeId add_node(Node node) {
    nodes.push_back(std::move(node));
    return NodeId(static_cast<int64_t>(nodes.size()) - 1);
  }
};

// Ranks of a placement, ascending.
std::vector<int32_t> ranks_of(const Mesh& mesh, const Placement& placement);
bool contains(const Mesh& mesh, const Placement& placement, int32_t rank);
std::vector<int64_t> coordinates_of(const Mesh& mesh, int64_t rank);
// What of a bucket its first `depth` stages leave to a rank.
struct BucketPart {
  int64_t start = 0, count = 0;  // elements
};
BucketPart part_of(const Mesh& mesh, const Bucket& bucket, size_t depth, int64_t rank);
// The parts of a pass of a chunk.
const std::vector<Part>& parts_of(const Chunk& chunk, Pass pass);
// Whether two placements share a device.
bool overlap(const Placement& a, const Placement& b);

// The DAG as text: one line a chunk, placement, bucket and node, sorted by id; the format of the golden tests.
std::string to_string(const TrainingDag& dag);
// "F(stage=0, mb=2)" for messages.
std::string describe(const TrainingDag& dag, NodeId node);

}  // namespace piper::ir
