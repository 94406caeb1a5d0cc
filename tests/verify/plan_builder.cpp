#include "tests/verify/plan_builder.h"

#include <algorithm>
#include <map>

namespace piper::testing {

namespace {

using namespace plan;  // NOLINT: a test helper that is all about plans

constexpr int64_t kWidth = 4;               // elements of a sample
constexpr int64_t kSample = kWidth * 4;     // bytes
constexpr int64_t kBucket = 128;            // bytes: w[4,4] at 0, b[4] at 64
enum Stats { kSum = 2, kCount = 3, kStatsCount = 4 };

std::vector<Share> cut(int64_t begin, int64_t size, int64_t parts, int64_t rotate) {
  std::vector<Share> shares;
  for (int64_t i = 0; i < parts; i++) {
    int64_t extra = (i + rotate) % parts < size % parts ? 1 : 0;
    shares.push_back({begin, size / parts + extra});
    begin += shares.back().count;
  }
  return shares;
}

// Builds the program of one stage.
class Stage {
 public:
  Stage(const PlanOptions& options, Plan* plan, int stage)
      : options_(options), plan_(*plan), s_(stage), last_(static_cast<int>(options.widths.size()) - 1), m_(options.microbatches) {
    program_.name = "stage=" + std::to_string(stage);
    for (const char* name : {"compute", "load", "send>next", "send>prev", "recv<next", "recv<prev", "reduce"}) {
      StreamKind kind = name[0] == 's' ? StreamKind::kSend : name[2] == 'c' ? StreamKind::kRecv : StreamKind::kCompute;
      if (name[0] == 'l') kind = StreamKind::kLoad;
      if (name == std::string("reduce")) kind = StreamKind::kCollective;
      program_.streams.push_back({name, kind, kind == StreamKind::kCompute ? "compute" : "comm", false});
    }
  }

  Program build() {
    make_state();
    make_activations();
    for (int b : grads_) zero(b, kBucket);
    zero(program_.stats_buffer, kStatsCount * 8);
    if (s_ == last_) count_targets();
    for (auto [forward, m] : compute_order()) {
      if (forward) run_forward(m);
      if (!forward) run_backward(m);
    }
    finish();
    program_.arena_bytes = arena_;
    return std::move(program_);
  }

 private:
  enum { kCompute, kLoad, kSendNext, kSendPrev, kRecvNext, kRecvPrev, kReduce };

  int buffer(const std::string& name, BufferKind kind, int64_t bytes, bool persistent, int64_t at = -1) {
    if (at < 0) {
      at = arena_;
      arena_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    program_.buffers.push_back({name, kind, DType::kF32, at, bytes, persistent});
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  void make_bucket(const std::string& name) {
    params_.push_back(buffer(name + ".w", BufferKind::kParameter, kBucket, true));
    grads_.push_back(buffer(name + ".g", BufferKind::kGradient, kBucket, true));
    states_.push_back(buffer(name + ".m", BufferKind::kOptimizer, kBucket, true));
    states_.push_back(buffer(name + ".v", BufferKind::kOptimizer, kBucket, true));
  }

  void make_state() {
    program_.stats_buffer = buffer("stats", BufferKind::kStats, kStatsCount * 8, true);
    program_.buffers.back().dtype = DType::kF64;
    valid_ = buffer("valid", BufferKind::kStats, 8, true);
    program_.buffers.back().dtype = DType::kF64;
    make_bucket("own");
    program_.params.push_back({2 * s_, params_[0], 0, true});
    program_.params.push_back({2 * s_ + 1, params_[0], 64, true});
    if (options_.tied && (s_ == 0 || s_ == last_)) {
      make_bucket("tied");
      program_.params.push_back({2 * (last_ + 1), params_[1], 0, s_ == 0});
    }
  }

  // One buffer a microbatch; microbatches `ring` apart share bytes.
  std::vector<int> per_microbatch(const std::string& name, BufferKind kind, int ring) {
    if (!options_.reuse) ring = m_;
    std::vector<int> buffers;
    int64_t bytes = kSample * plan_.batch;
    for (int m = 0; m < m_; m++) {
      int64_t at = m < ring ? -1 : program_.buffers[buffers[m - ring]].offset;
      buffers.push_back(buffer(name + std::to_string(m), kind, bytes, false, at));
    }
    return buffers;
  }

  void make_activations() {
    // Inputs live from a microbatch's forward to its backward.
    int in_flight = options_.one_f_one_b ? last_ + 1 - s_ : m_;
    in_ = per_microbatch(s_ == 0 ? "x" : "h_in", s_ == 0 ? BufferKind::kInput : BufferKind::kActivation, in_flight);
    if (s_ == last_) target_ = per_microbatch("target", BufferKind::kInput, m_);
    if (s_ < last_) out_ = per_microbatch("h_out", BufferKind::kCommunication, 1);
    if (s_ < last_) dout_ = per_microbatch("d_out", BufferKind::kCommunication, 2);
    if (s_ > 0) din_ = per_microbatch("d_in", BufferKind::kCommunication, 1);
  }

  std::vector<std::pair<bool, int>> compute_order() const {
    std::vector<std::pair<bool, int>> order;
    int warmup = options_.one_f_one_b ? std::min(m_, last_ + 1 - s_) : m_;
    for (int m = 0; m < warmup; m++) order.emplace_back(true, m);
    for (int m = 0; m < m_; m++) {
      order.emplace_back(false, m);
      if (warmup + m < m_) order.emplace_back(true, warmup + m);
    }
    return order;
  }

  BufferRange samples(int b, Access access) const { return {b, 0, 0, kSample, access}; }
  BufferRange whole(int b, int64_t bytes, Access access) const { return {b, 0, bytes, 0, access}; }
  BufferRange stat(int index, int count, Access access) const { return {program_.stats_buffer, index * 8, count * 8, 0, access}; }

  // Adds an instruction and the waits that it needs for what it touches; some are implied by others.
  Instruction& add(Opcode opcode, int stream, std::vector<BufferRange> ranges, int microbatch = -1) {
    Instruction instruction;
    instruction.opcode = opcode;
    instruction.stream = stream;
    instruction.ranges = std::move(ranges);
    instruction.microbatch = microbatch;
    instruction.share = microbatch >= 0 ? 0 : -1;
    instruction.source = opcode == Opcode::kCompute ? 0 : 1;
    for (size_t i = 0; i < program_.instructions.size(); i++) {
      const Instruction& other = program_.instructions[i];
      if (other.stream != stream && conflict(other, instruction)) instruction.waits.push_back(static_cast<int32_t>(i));
    }
    program_.instructions.push_back(std::move(instruction));
    return program_.instructions.back();
  }

  bool conflict(const Instruction& a, const Instruction& b) const {
    for (const BufferRange& x : a.ranges) {
      for (const BufferRange& y : b.ranges) {
        if (x.access == Access::kRead && y.access == Access::kRead) continue;
        int64_t p = program_.buffers[x.buffer].offset + x.offset, q = program_.buffers[y.buffer].offset + y.offset;
        if (p < q + y.bytes(plan_.batch) && q < p + x.bytes(plan_.batch)) return true;
      }
    }
    return false;
  }

  void zero(int b, int64_t bytes) { add(Opcode::kZero, kCompute, {whole(b, bytes, Access::kWrite)}); }

  // `names` are those of the values that the slots bind.
  void compute(const std::string& chunk, int m, const std::vector<std::string>& names, std::vector<BufferRange> ranges) {
    auto it = std::find_if(plan_.chunks.begin(), plan_.chunks.end(), [&](const Chunk& c) { return c.name == chunk; });
    if (it == plan_.chunks.end()) {
      Chunk made;
      made.name = chunk;
      for (char c : chunk) made.hash = made.hash * 131 + static_cast<unsigned char>(c);
      made.flops_per_sample = 2 * kWidth * kWidth;
      for (size_t i = 0; i < ranges.size(); i++) made.slots.push_back({names[i], ranges[i].access});
      for (int64_t n = 1; n <= plan_.batch; n++) made.variants.push_back(variant(made, ranges, n));
      it = plan_.chunks.insert(it, std::move(made));
    }
    int index = static_cast<int>(it - plan_.chunks.begin());
    add(Opcode::kCompute, kCompute, std::move(ranges), m).chunk = index;
  }

  KernelList variant(const Chunk& chunk, const std::vector<BufferRange>& ranges, int64_t n) const {
    KernelList list;
    list.samples = n;
    KernelCall call;
    call.op = chunk.name[0] == 'F' ? "Linear" : chunk.name[0] == 'B' ? "LinearGradWeight" : "CountValid";
    call.attrs.set("trans_w", int64_t{1});
    call.path = "layers." + std::to_string(s_);
    int64_t accumulate = 0;
    for (size_t i = 0; i < ranges.size(); i++) {
      list.slot_bytes.push_back(ranges[i].bytes(n));
      Operand operand{static_cast<int32_t>(i), 0, DType::kF32, {ranges[i].bytes(n) / 4}};
      if (ranges[i].access == Access::kReadWrite) accumulate |= int64_t{1} << call.outputs.size();
      (ranges[i].access == Access::kRead ? call.inputs : call.outputs).push_back(operand);
    }
    if (accumulate != 0) call.attrs.set("accumulate", accumulate);
    list.calls.push_back(std::move(call));
    return list;
  }

  void count_targets() {
    for (int m = 0; m < m_; m++) {
      add(Opcode::kLoadBatch, kLoad, {samples(target_[m], Access::kWrite)}, m).input = 1;
      compute("C", m, {"target", "stats"}, {samples(target_[m], Access::kRead), stat(kCount, 1, Access::kReadWrite)});
    }
    Instruction& copy = add(Opcode::kCopy, kCompute, {stat(kCount, 1, Access::kRead), whole(valid_, 8, Access::kWrite)});
    copy.tensor = "valid";
    if (options_.widths[s_] > 1) reduce("valid", 0, DType::kF64, {whole(valid_, 8, Access::kReadWrite)});
  }

  void reduce(const std::string& tensor, int group, DType dtype, std::vector<BufferRange> ranges) {
    Instruction& instruction = add(Opcode::kAllReduce, kReduce, std::move(ranges));
    instruction.group = group;
    instruction.dtype = dtype;
    instruction.tensor = tensor;
  }

  void run_forward(int m) {
    if (s_ == 0) {
      add(Opcode::kLoadBatch, kLoad, {samples(in_[m], Access::kWrite)}, m).input = 0;
    } else {
      transfer(Opcode::kRecv, kRecvPrev, s_ - 1, in_[m], m, false);
    }
    std::vector<BufferRange> ranges;
    std::vector<std::string> names;
    auto bind = [&](const std::string& name, BufferRange range) {
      names.push_back(name);
      ranges.push_back(range);
    };
    bind(in_name(), samples(in_[m], Access::kRead));
    bind("own", whole(params_[0], 80, Access::kRead));
    if (params_.size() > 1) bind("tied", whole(params_[1], 64, Access::kRead));
    if (s_ < last_) bind("h" + std::to_string(s_), samples(out_[m], Access::kWrite));
    if (s_ == last_) bind("target", samples(target_[m], Access::kRead));
    if (s_ == last_) bind("stats", stat(kSum, 1, Access::kReadWrite));
    compute("F" + std::to_string(s_), m, names, std::move(ranges));
    if (s_ < last_) transfer(Opcode::kSend, kSendNext, s_ + 1, out_[m], m, false);
  }

  void run_backward(int m) {
    if (s_ < last_) transfer(Opcode::kRecv, kRecvNext, s_ + 1, dout_[m], m, true);
    std::vector<BufferRange> ranges;
    std::vector<std::string> names;
    auto bind = [&](const std::string& name, BufferRange range) {
      names.push_back(name);
      ranges.push_back(range);
    };
    bind(in_name(), samples(in_[m], Access::kRead));
    bind("own", whole(params_[0], 80, Access::kRead));
    bind("own.g", whole(grads_[0], 80, Access::kReadWrite));
    if (params_.size() > 1) bind("tied.g", whole(grads_[1], 64, Access::kReadWrite));
    if (s_ < last_) bind("d_h" + std::to_string(s_), samples(dout_[m], Access::kRead));
    if (s_ == last_) bind("target", samples(target_[m], Access::kRead));
    if (s_ == last_) bind("valid", whole(valid_, 8, Access::kRead));
    if (s_ > 0) bind("d_h" + std::to_string(s_ - 1), samples(din_[m], Access::kWrite));
    compute("B" + std::to_string(s_), m, names, std::move(ranges));
    if (s_ > 0) transfer(Opcode::kSend, kSendPrev, s_ - 1, din_[m], m, true);
  }

  std::string in_name() const { return s_ == 0 ? "x" : "h" + std::to_string(s_ - 1); }

  // A value between neighbours: whole between stages of equal width, else one piece for each rank of the wider one.
  void transfer(Opcode opcode, int stream, int other, int b, int m, bool gradient) {
    int mine = options_.widths[s_], theirs = options_.widths[other];
    int pieces = mine == 1 ? theirs : 1;
    for (int p = 0; p < pieces; p++) {
      Access access = opcode == Opcode::kSend ? Access::kRead : Access::kWrite;
      Instruction& instruction = add(opcode, stream, {samples(b, access)}, m);
      // Peers: those of the stage before, then those of the stage after.
      instruction.peer = p + (other > s_ && s_ > 0 ? peers_of(s_ - 1) : 0);
      if (pieces > 1) instruction.piece = m * pieces + p;
      int boundary = std::min(other, s_);
      instruction.tag = (boundary * m_ + m) * 2 + (gradient ? 1 : 0);
      instruction.tensor = (gradient ? "d_h" : "h") + std::to_string(boundary);
    }
  }

  int peers_of(int other) const { return options_.widths[s_] == 1 ? options_.widths[other] : 1; }

  void finish() {
    int group = 0;
    if (options_.widths[s_] > 1) reduce("own.g", group++, DType::kF32, {whole(grads_[0], kBucket, Access::kReadWrite)});
    if (grads_.size() > 1) reduce("tied.g", group++, DType::kF32, {whole(grads_[1], kBucket, Access::kReadWrite)});
    for (size_t b = 0; b < grads_.size(); b++) {
      int holders = b == 0 ? options_.widths[s_] : options_.widths[0] + (last_ > 0 ? options_.widths[last_] : 0);
      add(Opcode::kNorm, kCompute, {whole(grads_[b], kBucket, Access::kRead), stat(0, 2, Access::kReadWrite)}).scale = 1.0 / holders;
    }
    reduce("stats", group, DType::kF64, {stat(0, kStatsCount, Access::kReadWrite)});
    for (size_t b = 0; b < params_.size(); b++) {
      add(Opcode::kUpdate, kCompute,
          {whole(params_[b], kBucket, Access::kReadWrite), whole(grads_[b], kBucket, Access::kRead),
           whole(states_[2 * b], kBucket, Access::kReadWrite), whole(states_[2 * b + 1], kBucket, Access::kReadWrite),
           stat(0, kStatsCount, Access::kRead)})
          .update = b == 0 ? 0 : 1;
    }
  }

  const PlanOptions& options_;
  Plan& plan_;
  int s_, last_, m_;
  Program program_;
  int64_t arena_ = 0;
  int valid_ = -1;
  std::vector<int> params_, grads_, states_, in_, target_, out_, dout_, din_;
};

int first_rank(const PlanOptions& options, int stage) {
  int rank = 0;
  for (int s = 0; s < stage; s++) rank += options.widths[s];
  return rank;
}

std::vector<std::vector<Share>> microbatch_shares(const PlanOptions& options, int stage) {
  std::vector<std::vector<Share>> of_rank(options.widths[stage]);
  std::vector<Share> microbatches = cut(0, options.batch, options.microbatches, 0);
  for (int m = 0; m < options.microbatches; m++) {
    std::vector<Share> shares = cut(microbatches[m].start, microbatches[m].count, options.widths[stage], m);
    for (size_t i = 0; i < shares.size(); i++) of_rank[i].push_back(shares[i]);
  }
  return of_rank;
}

void add_ranks(const PlanOptions& options, Plan* plan) {
  int stages = static_cast<int>(options.widths.size());
  std::vector<int32_t> world, tied;
  int group_of_world = 0;
  for (int s = 0; s < stages; s++) {
    std::vector<int32_t> ranks;
    for (int i = 0; i < options.widths[s]; i++) ranks.push_back(first_rank(options, s) + i);
    world.insert(world.end(), ranks.begin(), ranks.end());
    if (s == 0 || s == stages - 1) tied.insert(tied.end(), ranks.begin(), ranks.end());
    plan->groups.push_back({"stage=" + std::to_string(s), ranks});
    group_of_world++;
  }
  plan->groups.push_back({"world", world});
  if (options.tied) plan->groups.push_back({"tied", tied});
  for (int s = 0; s < stages; s++) {
    std::vector<std::vector<Share>> shares = microbatch_shares(options, s);
    for (int i = 0; i < options.widths[s]; i++) {
      RankEntry rank;
      rank.program = s;
      rank.coordinates = {first_rank(options, s) + i};
      for (int other : {s - 1, s + 1}) {
        if (other < 0 || other >= stages) continue;
        int theirs = options.widths[other];
        for (int p = 0; p < (options.widths[s] == 1 ? theirs : 1); p++) {
          rank.peers.push_back(first_rank(options, other) + (options.widths[s] == 1 ? p : theirs == 1 ? 0 : i));
        }
        if (options.widths[s] != 1 || theirs == 1) continue;
        std::vector<std::vector<Share>> wide = microbatch_shares(options, other);
        for (int m = 0; m < options.microbatches; m++) {
          for (const std::vector<Share>& share : wide) {
            rank.pieces.push_back({share[m].start - shares[i][m].start, share[m].count});
          }
        }
      }
      if (options.widths[s] > 1) rank.groups.push_back(s);
      if (options.tied && (s == 0 || s == stages - 1)) rank.groups.push_back(group_of_world + 1);
      rank.groups.push_back(group_of_world);
      rank.shares = {shares[i]};
      plan->ranks.push_back(std::move(rank));
    }
  }
}

}  // namespace

Plan build_plan(const PlanOptions& options) {
  Plan plan;
  int stages = static_cast<int>(options.widths.size());
  plan.model_file = "model.onnx";
  plan.model_hash = 0x1234;
  plan.strategy_file = "pipeline.piper";
  plan.strategy_hash = 0x5678;
  plan.strategy_text = "mesh dev[2]\n";
  plan.batch = options.batch;
  plan.microbatches = options.microbatches;
  plan.stats_count = kStatsCount;
  plan.clip_norm = 1;
  plan.sources = {"pipeline.piper:3: place stage=* on dev", "pipeline.piper:5: replicate all()"};
  plan.inputs = {{"x", DType::kF32, {kWidth}}, {"target", DType::kF32, {kWidth}, true}};
  plan.loss = {{"mse", 1, kSum, kCount}};
  plan.updates = {{"own", {{0, 16, true}, {16, 20, false}}}};
  if (options.tied) plan.updates.push_back({"tied", {{0, 16, true}}});
  plan.contract.microbatches = options.microbatches;
  plan.contract.loss_weights = {1};
  for (int s = 0; s < stages; s++) {
    std::string layer = "layers." + std::to_string(s);
    plan.params.push_back({layer + ".weight", DType::kF32, {4, 4}});
    plan.params.push_back({layer + ".bias", DType::kF32, {4}});
    plan.contract.contributions.push_back({2 * s, s});
    plan.contract.contributions.push_back({2 * s + 1, s});
  }
  if (options.tied) {
    plan.params.push_back({"tied.weight", DType::kF32, {4, 4}});
    plan.contract.contributions.push_back({2 * stages, 0});
    plan.contract.contributions.push_back({2 * stages, stages - 1});
  }
  for (int s = 0; s < stages; s++) plan.programs.push_back(Stage(options, &plan, s).build());
  add_ranks(options, &plan);
  plan.mesh = {{"dev", plan.world_size()}};
  for (int s = 0; s < stages; s++) {
    std::string name = "F" + std::to_string(s);
    plan.contract.chunk_names.push_back(name);
    for (const Chunk& chunk : plan.chunks) {
      if (chunk.name == name) plan.contract.chunk_hashes.push_back(chunk.hash);
    }
  }
  return plan;
}

std::vector<std::pair<std::string, PlanOptions>> plan_family() {
  return {
      {"single", {.widths = {1}, .microbatches = 1, .batch = 4}},
      {"accumulate", {.widths = {1}, .microbatches = 3, .batch = 6}},
      {"data_parallel", {.widths = {2}, .microbatches = 2, .batch = 5}},
      {"pipeline_2", {.widths = {1, 1}, .microbatches = 3, .batch = 6}},
      {"gpipe_3", {.widths = {1, 1, 1}, .microbatches = 4, .batch = 8, .one_f_one_b = false}},
      {"pipeline_2x2", {.widths = {2, 2}, .microbatches = 3, .batch = 7}},
      {"tied_3", {.widths = {1, 1, 1}, .microbatches = 3, .batch = 6, .tied = true}},
      {"narrow", {.widths = {2, 1}, .microbatches = 3, .batch = 7}},
      {"wide", {.widths = {1, 2}, .microbatches = 2, .batch = 6, .tied = true}},
      {"no_reuse", {.widths = {2, 2}, .microbatches = 3, .batch = 8, .reuse = false}},
  };
}

}  // namespace piper::testing
