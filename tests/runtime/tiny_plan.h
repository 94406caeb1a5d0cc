// Hand-made plans for tests of the executor: a linear model y = x w + b with a squared error, on one rank, on two that
// share the samples, or on two of which one has the parameters and the other the loss.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/safetensors.h"

namespace piper::runtime {

inline constexpr int64_t kIn = 4, kOut = 3;
// Bytes of the bucket: w at 0, b at the next aligned offset.
inline constexpr int64_t kBiasOffset = 64, kBucketBytes = 128;
// Stats: [squares, non-finite, loss sum, loss count].
inline constexpr int64_t kStatsBytes = 4 * sizeof(double);

// Adds to a program what a test needs, one line a thing.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(plan::Plan* plan) : plan_(plan) { program_.streams.push_back({"compute"}); }

  int32_t stream(const std::string& name, plan::StreamKind kind) {
    program_.streams.push_back({name, kind});
    return static_cast<int32_t>(program_.streams.size()) - 1;
  }
  int32_t buffer(const std::string& name, plan::BufferKind kind, int64_t bytes, plan::DType dtype = plan::DType::kF32) {
    program_.buffers.push_back({name, kind, dtype, program_.arena_bytes, bytes, true});
    program_.arena_bytes += (bytes + plan::kAlignment - 1) / plan::kAlignment * plan::kAlignment;
    return static_cast<int32_t>(program_.buffers.size()) - 1;
  }
  // Appends an instruction and returns its index.
  int32_t add(plan::Opcode opcode, std::vector<plan::BufferRange> ranges, std::vector<int32_t> waits = {},
              int32_t on_stream = 0) {
    plan::Instruction in;
    in.opcode = opcode;
    in.stream = on_stream;
    in.waits = std::move(waits);
    in.ranges = std::move(ranges);
    program_.instructions.push_back(std::move(in));
    return static_cast<int32_t>(program_.instructions.size()) - 1;
  }
  plan::Instruction& at(int32_t index) { return program_.instructions[static_cast<size_t>(index)]; }
  // A range of the samples of share 0 in a microbatch.
  int32_t add_of_samples(plan::Opcode opcode, int32_t microbatch, std::vector<plan::BufferRange> ranges,
                         std::vector<int32_t> waits = {}, int32_t on_stream = 0) {
    const int32_t index = add(opcode, std::move(ranges), std::move(waits), on_stream);
    at(index).share = 0;
    at(index).microbatch = microbatch;
    return index;
  }
  int32_t compute(int32_t chunk, int32_t microbatch, std::vector<plan::BufferRange> ranges, std::vector<int32_t> waits = {}) {
    const int32_t index = add_of_samples(plan::Opcode::kCompute, microbatch, std::move(ranges), std::move(waits));
    at(index).chunk = chunk;
    return index;
  }
  plan::Program& program() { return program_; }
  void finish() { plan_->programs.push_back(std::move(program_)); }

 private:
  plan::Plan* plan_;
  plan::Program program_;
};

inline plan::BufferRange fixed(int32_t buffer, int64_t bytes, plan::Access access, int64_t offset = 0) {
  return {buffer, offset, bytes, 0, access};
}
inline plan::BufferRange samples(int32_t buffer, int64_t bytes_per_sample, plan::Access access) {
  return {buffer, 0, 0, bytes_per_sample, access};
}

// Chunks of the linear model for the given local sizes: [0] counts, [1] forward, [2] loss and its gradient, [3] backward.
inline void add_linear_chunks(plan::Plan* plan, const std::vector<int64_t>& sizes) {
  using enum plan::Access;
  plan::Chunk count{"count", {{"y", kRead}, {"stats", kReadWrite}}};
  plan::Chunk forward{"forward", {{"x", kRead}, {"params", kRead}, {"prediction", kWrite}}};
  plan::Chunk loss{"loss", {{"prediction", kRead}, {"y", kRead}, {"dprediction", kWrite}, {"stats", kReadWrite}}};
  plan::Chunk backward{"backward", {{"x", kRead}, {"dprediction", kRead}, {"gradients", kReadWrite}}};
  const ir::Attrs accumulate{{"accumulate", int64_t{1}}};
  auto f64 = [](int32_t slot, int64_t index) { return plan::Operand{slot, index * 8, plan::DType::kF64, {1}}; };
  auto f32 = [](int32_t slot, std::vector<int64_t> shape, int64_t offset = 0) {
    return plan::Operand{slot, offset, plan::DType::kF32, std::move(shape)};
  };
  for (int64_t n : sizes) {
    const std::vector<int64_t> in{n, kIn}, out{n, kOut}, w{kIn, kOut}, b{kOut};
    const int64_t x_bytes = n * kIn * 4, y_bytes = n * kOut * 4;
    count.variants.push_back({n, {{"CountElements", accumulate, {f32(0, out)}, {f64(1, 3)}}}, {y_bytes, kStatsBytes}});
    forward.variants.push_back(
        {n, {{"Linear", {}, {f32(0, in), f32(1, w), f32(1, b, kBiasOffset)}, {f32(2, out)}}}, {x_bytes, kBucketBytes, y_bytes}});
    loss.variants.push_back({n,
                             {{"MseLoss", accumulate, {f32(0, out), f32(1, out)}, {f64(3, 2)}},
                              {"MseGrad", {}, {f32(0, out), f32(1, out), f64(3, 3)}, {f32(2, out)}}},
                             {y_bytes, y_bytes, y_bytes, kStatsBytes}});
    backward.variants.push_back({n,
                                 {{"LinearGradWeight", accumulate, {f32(0, in), f32(1, out)}, {f32(2, w)}},
                                  {"LinearGradBias", accumulate, {f32(1, out)}, {f32(2, b, kBiasOffset)}}},
                                 {x_bytes, y_bytes, kBucketBytes}});
  }
  plan->chunks = {count, forward, loss, backward};
}

inline plan::Plan linear_plan_base(int64_t batch, int32_t microbatches) {
  plan::Plan plan;
  plan.batch = batch;
  plan.microbatches = microbatches;
  plan.seed = 7;
  plan.params = {{"layer.weight", plan::DType::kF32, {kIn, kOut}}, {"layer.bias", plan::DType::kF32, {kOut}}};
  for (plan::Param& param : plan.params) {
    param.init = plan::InitKind::kNormal;
    param.init_b = 0.5;
  }
  plan.params[0].transposed = true;  // known as [out, in]
  plan.inputs = {{"x", plan::DType::kF32, {kIn}}, {"y", plan::DType::kF32, {kOut}, true}};
  plan.loss = {{"mse", 1, 2, 3}};
  plan.stats_count = 4;
  plan.optimizer.kind = plan::OptimizerKind::kSgd;
  plan.optimizer.lr = 0.1;
  plan.updates = {{"bucket", {{0, kIn * kOut, true}, {kBiasOffset / 4, kBiasOffset / 4 + kOut, false}}}};
  return plan;
}

// Buffers of the linear model; a rank that lacks a part leaves it at -1.
struct LinearBuffers {
  int32_t params = -1, gradients = -1, stats = -1, x = -1, y = -1, prediction = -1, dprediction = -1;
  std::vector<int32_t> states;
};

inline LinearBuffers add_linear_buffers(ProgramBuilder* builder, const plan::Plan& plan, int64_t most, bool has_params) {
  using enum plan::BufferKind;
  LinearBuffers b;
  if (has_params) {
    b.params = builder->buffer("params", kParameter, kBucketBytes);
    b.gradients = builder->buffer("gradients", kGradient, kBucketBytes);
    const int states = plan.optimizer.kind != plan::OptimizerKind::kSgd ? 2 : plan.optimizer.momentum != 0 ? 1 : 0;
    for (int s = 0; s < states; s++) b.states.push_back(builder->buffer("state", kOptimizer, kBucketBytes));
    builder->program().params = {{0, b.params, 0, true}, {1, b.params, kBiasOffset, true}};
  }
  b.stats = builder->buffer("stats", kStats, kStatsBytes, plan::DType::kF64);
  builder->program().stats_buffer = b.stats;
  b.x = builder->buffer("x", kInput, most * kIn * 4);
  b.y = builder->buffer("y", kInput, most * kOut * 4);
  b.prediction = builder->buffer("prediction", kActivation, most * kOut * 4);
  b.dprediction = builder->buffer("dprediction", kActivation, most * kOut * 4);
  return b;
}

inline void add_update(ProgramBuilder* builder, const LinearBuffers& b, std::vector<int32_t> waits) {
  using enum plan::Access;
  std::vector<plan::BufferRange> ranges = {fixed(b.params, kBucketBytes, kReadWrite), fixed(b.gradients, kBucketBytes, kRead)};
  for (int32_t state : b.states) ranges.push_back(fixed(state, kBucketBytes, kReadWrite));
  ranges.push_back(fixed(b.stats, kStatsBytes, kRead));
  builder->at(builder->add(plan::Opcode::kUpdate, std::move(ranges), std::move(waits))).update = 0;
}

inline void add_norm(ProgramBuilder* builder, const LinearBuffers& b, double scale, std::vector<int32_t> waits = {}) {
  using enum plan::Access;
  const int32_t norm = builder->add(plan::Opcode::kNorm, {fixed(b.gradients, kBucketBytes, kRead), fixed(b.stats, kStatsBytes, kReadWrite)},
                                    std::move(waits));
  builder->at(norm).scale = scale;
}

// One program of `ranks` ranks that share the samples: `counts[rank][microbatch]` of them. With `ranks` > 1 counts,
// gradients and statistics are summed over all of them. `plan` has its options set.
inline void add_linear_program(plan::Plan* plan, const std::vector<std::vector<int64_t>>& counts) {
  using enum plan::Access;
  using plan::Opcode;
  int64_t most = 0, start = 0;
  std::vector<int64_t> sizes;
  const bool shared = counts.size() > 1;
  plan->ranks.resize(counts.size());
  for (plan::RankEntry& entry : plan->ranks) entry.shares.resize(1);
  for (int32_t m = 0; m < plan->microbatches; m++) {
    for (size_t r = 0; r < counts.size(); r++) {
      const int64_t n = counts[r][static_cast<size_t>(m)];
      plan->ranks[r].shares[0].push_back({start, n});
      start += n;
      sizes.push_back(n);
    }
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  most = sizes.back();
  add_linear_chunks(plan, sizes);
  if (shared) {
    plan::Group all{"all", {}};
    for (size_t r = 0; r < counts.size(); r++) all.ranks.push_back(static_cast<int32_t>(r));
    plan->groups = {all};
    for (plan::RankEntry& entry : plan->ranks) entry.groups = {0};
  }

  ProgramBuilder builder(plan);
  const int32_t load = builder.stream("load", plan::StreamKind::kLoad);
  const int32_t reduce = builder.stream("reduce", plan::StreamKind::kCollective);
  const LinearBuffers b = add_linear_buffers(&builder, *plan, most, true);
  auto all_reduce = [&](plan::BufferRange range, plan::DType dtype, std::vector<int32_t> waits) {
    const int32_t index = builder.add(Opcode::kAllReduce, {range}, std::move(waits), reduce);
    builder.at(index).group = 0;
    builder.at(index).dtype = dtype;
    return index;
  };
  builder.add(Opcode::kZero, {fixed(b.gradients, kBucketBytes, kWrite)});
  builder.add(Opcode::kZero, {fixed(b.stats, kStatsBytes, kWrite)});
  int32_t last = -1;
  for (int32_t m = 0; m < plan->microbatches; m++) {
    const int32_t y = builder.add_of_samples(Opcode::kLoadBatch, m, {samples(b.y, kOut * 4, kWrite)},
                                             last < 0 ? std::vector<int32_t>{} : std::vector<int32_t>{last}, load);
    builder.at(y).input = 1;
    last = builder.compute(0, m, {samples(b.y, kOut * 4, kRead), fixed(b.stats, kStatsBytes, kReadWrite)}, {y});
  }
  int32_t counted = last;
  if (shared) counted = all_reduce(fixed(b.stats, 8, kReadWrite, 24), plan::DType::kF64, {last});
  for (int32_t m = 0; m < plan->microbatches; m++) {
    const int32_t x = builder.add_of_samples(Opcode::kLoadBatch, m, {samples(b.x, kIn * 4, kWrite)}, {last}, load);
    const int32_t y = builder.add_of_samples(Opcode::kLoadBatch, m, {samples(b.y, kOut * 4, kWrite)}, {last}, load);
    builder.at(x).input = 0;
    builder.at(y).input = 1;
    builder.compute(1, m, {samples(b.x, kIn * 4, kRead), fixed(b.params, kBucketBytes, kRead), samples(b.prediction, kOut * 4, kWrite)}, {x});
    builder.compute(2, m, {samples(b.prediction, kOut * 4, kRead), samples(b.y, kOut * 4, kRead), samples(b.dprediction, kOut * 4, kWrite),
                           fixed(b.stats, kStatsBytes, kReadWrite)}, {counted, y});
    last = builder.compute(3, m, {samples(b.x, kIn * 4, kRead), samples(b.dprediction, kOut * 4, kRead), fixed(b.gradients, kBucketBytes, kReadWrite)});
  }
  std::vector<int32_t> reduced;
  if (shared) reduced = {all_reduce(fixed(b.gradients, kBucketBytes, kReadWrite), plan::DType::kF32, {last})};
  add_norm(&builder, b, 1.0 / static_cast<double>(counts.size()), reduced);
  std::vector<int32_t> summed;
  const int32_t norm = static_cast<int32_t>(builder.program().instructions.size()) - 1;
  if (shared) summed = {all_reduce(fixed(b.stats, 24, kReadWrite), plan::DType::kF64, {norm})};
  add_update(&builder, b, summed);
  builder.finish();
}

// Two ranks: 0 loads the targets and has the loss, 1 has the parameters. The prediction and its gradient travel.
inline void add_split_programs(plan::Plan* plan, const std::vector<int64_t>& counts) {
  using enum plan::Access;
  using plan::Opcode;
  std::vector<int64_t> sizes = counts;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  add_linear_chunks(plan, sizes);
  plan->groups = {{"all", {0, 1}}};
  plan->ranks.resize(2);
  for (int32_t r = 0; r < 2; r++) {
    plan::RankEntry& entry = plan->ranks[static_cast<size_t>(r)];
    entry.program = r;
    entry.peers = {1 - r};
    entry.groups = {0};
    entry.shares.resize(1);
    int64_t start = 0;
    for (int64_t n : counts) {
      entry.shares[0].push_back({start, n});
      start += n;
    }
    ProgramBuilder builder(plan);
    const int32_t send = builder.stream("send", plan::StreamKind::kSend);
    const int32_t recv = builder.stream("recv", plan::StreamKind::kRecv);
    const LinearBuffers b = add_linear_buffers(&builder, *plan, sizes.back(), r == 1);
    auto message = [&](Opcode opcode, int32_t m, int32_t buffer, const char* tensor, int32_t tag, std::vector<int32_t> waits) {
      const bool out = opcode == Opcode::kSend;
      const int32_t index = builder.add_of_samples(opcode, m, {samples(buffer, kOut * 4, out ? kRead : kWrite)}, std::move(waits), out ? send : recv);
      builder.at(index).peer = 0;
      builder.at(index).tensor = tensor;
      builder.at(index).tag = tag;
      return index;
    };
    auto load = [&](int32_t m, int32_t input, int32_t buffer, int64_t bytes) {
      builder.at(builder.add_of_samples(Opcode::kLoadBatch, m, {samples(buffer, bytes, kWrite)})).input = input;
    };
    builder.add(Opcode::kZero, {fixed(b.stats, kStatsBytes, kWrite)});
    if (r == 1) builder.add(Opcode::kZero, {fixed(b.gradients, kBucketBytes, kWrite)});
    int32_t last = 0;
    if (r == 0) {
      for (int32_t m = 0; m < plan->microbatches; m++) {
        load(m, 1, b.y, kOut * 4);
        last = builder.compute(0, m, {samples(b.y, kOut * 4, kRead), fixed(b.stats, kStatsBytes, kReadWrite)});
      }
    }
    for (int32_t m = 0; m < plan->microbatches; m++) {
      if (r == 0) {
        const int32_t got = message(Opcode::kRecv, m, b.prediction, "prediction", 10 + m, {last});
        load(m, 1, b.y, kOut * 4);
        last = builder.compute(2, m, {samples(b.prediction, kOut * 4, kRead), samples(b.y, kOut * 4, kRead),
                                      samples(b.dprediction, kOut * 4, kWrite), fixed(b.stats, kStatsBytes, kReadWrite)}, {got});
        last = message(Opcode::kSend, m, b.dprediction, "dprediction", 20 + m, {last});
      } else {
        load(m, 0, b.x, kIn * 4);
        const int32_t forward = builder.compute(1, m, {samples(b.x, kIn * 4, kRead), fixed(b.params, kBucketBytes, kRead), samples(b.prediction, kOut * 4, kWrite)});
        const int32_t sent = message(Opcode::kSend, m, b.prediction, "prediction", 10 + m, {forward});
        const int32_t got = message(Opcode::kRecv, m, b.dprediction, "dprediction", 20 + m, {forward});
        last = builder.compute(3, m, {samples(b.x, kIn * 4, kRead), samples(b.dprediction, kOut * 4, kRead), fixed(b.gradients, kBucketBytes, kReadWrite)}, {got, sent});
      }
    }
    const int32_t reduce = builder.stream("reduce", plan::StreamKind::kCollective);
    if (r == 1) {
      add_norm(&builder, b, 1);
      last = static_cast<int32_t>(builder.program().instructions.size()) - 1;
    }
    const int32_t summed = builder.add(Opcode::kAllReduce, {fixed(b.stats, kStatsBytes, kReadWrite)}, {last}, reduce);
    builder.at(summed).group = 0;
    builder.at(summed).dtype = plan::DType::kF64;
    if (r == 1) add_update(&builder, b, {summed});
    builder.finish();
  }
}

}  // namespace piper::runtime
