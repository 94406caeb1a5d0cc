// The executor on hand-made plans, against a plain loop in f64.
#include <xxhash.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "frontend/onnx/initializer_reader.h"
#include "plan/check.h"
#include "runtime/lr_schedule.h"
#include "runtime/random.h"
#include "runtime/worker.h"
#include "tests/runtime/ranks.h"
#include "tests/runtime/tiny_plan.h"
#include "tests/temp_folder.h"

namespace piper::runtime {

namespace {

constexpr int64_t kSamples = 24;
using Values = std::vector<float>;

struct Samples {
  Values x, y;
};

Samples make_samples() {
  Samples samples{Values(kSamples * kIn), Values(kSamples * kOut)};
  for (size_t i = 0; i < samples.x.size(); i++) samples.x[i] = static_cast<float>(random_normal(1, i));
  for (size_t i = 0; i < samples.y.size(); i++) samples.y[i] = static_cast<float>(random_normal(2, i));
  return samples;
}

void write_file(const std::string& path, const Samples& samples) {
  const int64_t n = static_cast<int64_t>(samples.x.size()) / kIn;
  auto writer = SafetensorsWriter::create(path, {{"x", ir::DType::kF32, {n, kIn}}, {"y", ir::DType::kF32, {n, kOut}}});
  REQUIRE(writer);
  REQUIRE(writer->append(samples.x.data(), samples.x.size() * 4));
  REQUIRE(writer->append(samples.y.data(), samples.y.size() * 4));
  REQUIRE(writer->finish());
}

Values read_tensor(const std::string& path, const std::string& name) {
  auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  const TensorView* tensor = file->find(name);
  REQUIRE(tensor);
  Values values(tensor->data.size() / 4);
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

struct Weights {
  Values w, b;  // w as the file has it: [out, in]
};
Weights read_weights(const std::string& path) {
  return {read_tensor(path, "layer.weight"), read_tensor(path, "layer.bias")};
}

double largest_difference(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); i++) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

struct Result {
  std::vector<Expected<RunSummary>> ranks;
  std::vector<StepReport> reports;  // of rank 0
};

Result run_job(const plan::Plan& plan, const RunOptions& options, bool rendezvous = false) {
  for (const plan::Problem& problem : plan::check(plan)) FAIL(problem.where(plan) << problem.message);
  auto hub = LoopbackHub::make(plan.world_size(), {rendezvous});
  Result result;
  result.ranks.resize(static_cast<size_t>(plan.world_size()));
  run_threads(plan.world_size(), [&](int rank) {
    auto transport = hub->connect(rank);
    result.ranks[static_cast<size_t>(rank)] =
        run_rank(plan, *transport, options, [&](const StepReport& report) { result.reports.push_back(report); });
  });
  return result;
}

void require_success(const Result& result) {
  for (const auto& rank : result.ranks) {
    if (!rank) FAIL(rank.error().message);
  }
}

plan::Plan single_plan(int64_t batch, std::vector<int64_t> counts) {
  plan::Plan plan = linear_plan_base(batch, static_cast<int32_t>(counts.size()));
  add_linear_program(&plan, {std::move(counts)});
  return plan;
}

// What training must do, with plain SGD: the loss and the gradient's norm of each step, and the weights at the end.
struct Reference {
  std::vector<double> losses, norms;
  std::vector<double> w, b;
};
Reference reference(const plan::Plan& plan, const Samples& data, const Weights& start, int64_t steps) {
  Reference ref{{}, {}, {start.w.begin(), start.w.end()}, {start.b.begin(), start.b.end()}};
  for (int64_t k = 0; k < steps; k++) {
    std::vector<double> dw(kIn * kOut, 0), db(kOut, 0);
    const double count = static_cast<double>(plan.batch * kOut);
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < plan.batch; j++) {
      const int64_t s = (k * plan.batch + j) % kSamples;
      for (int64_t o = 0; o < kOut; o++) {
        double y = ref.b[o];
        for (int64_t i = 0; i < kIn; i++) y += data.x[s * kIn + i] * ref.w[o * kIn + i];
        const double d = y - data.y[s * kOut + o];
        sum += d * d;
        for (int64_t i = 0; i < kIn; i++) dw[o * kIn + i] += 2 / count * d * data.x[s * kIn + i];
        db[o] += 2 / count * d;
      }
    }
    for (double g : dw) squares += g * g;
    for (double g : db) squares += g * g;
    ref.losses.push_back(sum / count);
    ref.norms.push_back(std::sqrt(squares));
    const double lr = learning_rate(plan.optimizer.lr, plan.schedule, k);
    const double scale = plan.clip_norm > 0 ? std::min(1.0, plan.clip_norm / (ref.norms.back() + 1e-6)) : 1;
    for (size_t i = 0; i < dw.size(); i++) {
      ref.w[i] -= lr * (scale * dw[i] + plan.optimizer.weight_decay * ref.w[i]);
    }
    for (size_t i = 0; i < db.size(); i++) ref.b[i] -= lr * scale * db[i];
  }
  return ref;
}

// Trains by `plan` and compares losses, norms and weights with the reference.
void require_reference(const plan::Plan& plan, bool rendezvous = false, bool delays = false) {
  constexpr int64_t kSteps = 4;
  test::TempFolder folder;
  const Samples data = make_samples();
  write_file(folder.file("data.safetensors"), data);
  RunOptions options;
  options.data = folder.file("data.safetensors");
  options.shuffle = false;
  options.steps = 0;
  options.save = folder.file("start");
  require_success(run_job(plan, options));
  options.steps = kSteps;
  options.save = folder.file("end");
  options.deterministic_delays = delays;
  const Result result = run_job(plan, options, rendezvous);
  require_success(result);

  const Reference ref = reference(plan, data, read_weights(folder.file("start/model.safetensors")), kSteps);
  for (const auto& rank : result.ranks) {
    for (size_t k = 0; k < kSteps; k++) {
      CHECK(rank->losses[k] == Approx(ref.losses[k]).epsilon(1e-5));
      CHECK(rank->grad_norms[k] == Approx(ref.norms[k]).epsilon(1e-5));
    }
  }
  REQUIRE(result.reports.size() == kSteps);
  const Weights end = read_weights(folder.file("end/model.safetensors"));
  CHECK(largest_difference(end.w, Values(ref.w.begin(), ref.w.end())) < 1e-5);
  CHECK(largest_difference(end.b, Values(ref.b.begin(), ref.b.end())) < 1e-5);
}

}  // namespace

TEST_CASE("a rank trains a linear model as the formulas say") { require_reference(single_plan(6, {6})); }

TEST_CASE("microbatches of any size give the same step") {
  require_reference(single_plan(6, {3, 3}));
  require_reference(single_plan(6, {1, 5}));
}

TEST_CASE("clipping, weight decay and the schedule enter the update") {
  plan::Plan plan = linear_plan_base(6, 2);
  plan.clip_norm = 0.3;
  plan.optimizer.weight_decay = 0.05;
  plan.schedule = {plan::ScheduleKind::kCosine, 2, 5, 0.01};
  add_linear_program(&plan, {{2, 4}});
  require_reference(plan);
}

TEST_CASE("ranks that share the samples train as one") {
  plan::Plan plan = linear_plan_base(6, 2);
  plan.clip_norm = 0.3;
  add_linear_program(&plan, {{1, 2}, {2, 1}});
  require_reference(plan);
  require_reference(plan, true, true);
}

TEST_CASE("ranks that send each other activations and gradients train as one") {
  plan::Plan plan = linear_plan_base(6, 2);
  add_split_programs(&plan, {2, 4});
  require_reference(plan);
  require_reference(plan, true, true);
}

TEST_CASE("the same plan gives the same bits, whatever the timing and the number of threads") {
  test::TempFolder folder;
  write_file(folder.file("data.safetensors"), make_samples());
  plan::Plan plan = linear_plan_base(6, 2);
  plan.optimizer.kind = plan::OptimizerKind::kAdamW;
  add_linear_program(&plan, {{1, 2}, {2, 1}});
  std::vector<Values> ends;
  for (int run = 0; run < 3; run++) {
    RunOptions options;
    options.data = folder.file("data.safetensors");
    options.steps = 6;
    options.save = folder.file("run" + std::to_string(run));
    options.deterministic_delays = run == 1;
    options.threads = run == 2 ? 2 : 1;
    require_success(run_job(plan, options));
    ends.push_back(read_weights(folder.file("run" + std::to_string(run) + "/model.safetensors")).w);
  }
  CHECK(ends[0] == ends[1]);
  CHECK(ends[0] == ends[2]);
}

TEST_CASE("a step with a gradient that is not finite is skipped as if it had not been") {
  test::TempFolder folder;
  plan::Plan plan = linear_plan_base(6, 1);
  plan.optimizer.kind = plan::OptimizerKind::kAdamW;
  plan.optimizer.eps = 1e-3;
  add_linear_program(&plan, {{3}, {3}});
  Samples whole = make_samples();
  Samples without = whole;
  without.x.erase(without.x.begin() + 6 * kIn, without.x.begin() + 12 * kIn);
  without.y.erase(without.y.begin() + 6 * kOut, without.y.begin() + 12 * kOut);
  whole.x[10 * kIn] = std::numeric_limits<float>::quiet_NaN();  // of rank 1's part of step 1
  write_file(folder.file("whole.safetensors"), whole);
  write_file(folder.file("without.safetensors"), without);

  RunOptions options;
  options.shuffle = false;
  options.data = folder.file("whole.safetensors");
  options.steps = 4;
  options.save = folder.file("whole");
  const Result skipped = run_job(plan, options);
  require_success(skipped);
  CHECK(skipped.reports[1].skipped);
  CHECK_FALSE(skipped.reports[2].skipped);
  options.data = folder.file("without.safetensors");
  options.steps = 3;
  options.save = folder.file("without");
  require_success(run_job(plan, options));
  const Weights a = read_weights(folder.file("whole/model.safetensors"));
  const Weights b = read_weights(folder.file("without/model.safetensors"));
  CHECK(a.w == b.w);
  CHECK(a.b == b.b);
}

TEST_CASE("non-finite gradients stop a run that does not skip, and any run after ten steps") {
  test::TempFolder folder;
  Samples bad = make_samples();
  for (float& x : bad.x) x = std::numeric_limits<float>::infinity();
  write_file(folder.file("bad.safetensors"), bad);
  RunOptions options;
  options.data = folder.file("bad.safetensors");
  options.steps = 20;

  const Result skipping = run_job(single_plan(6, {6}), options);
  REQUIRE_FALSE(skipping.ranks[0]);
  CHECK(skipping.reports.size() == 10);
  CHECK(skipping.ranks[0].error().message.find("10 steps in a row") != std::string::npos);

  // Every second step of these is bad: more than ten, but not in a row.
  Samples alternating = make_samples();
  for (int64_t i : {6, 18}) alternating.x[static_cast<size_t>(i * kIn)] = std::numeric_limits<float>::infinity();
  write_file(folder.file("alternating.safetensors"), alternating);
  options.data = folder.file("alternating.safetensors");
  options.shuffle = false;
  options.steps = 30;
  require_success(run_job(single_plan(6, {6}), options));

  options.data = folder.file("bad.safetensors");
  plan::Plan plan = single_plan(6, {6});
  plan.skip_nonfinite = false;
  const Result stopping = run_job(plan, options);
  REQUIRE_FALSE(stopping.ranks[0]);
  CHECK(stopping.reports.empty());
  CHECK(stopping.ranks[0].error().message.find("update `bucket`: the gradients of step 0 are not finite") !=
        std::string::npos);
}

TEST_CASE("a loss without valid elements counts as zero") {
  plan::Plan plan = single_plan(6, {6});
  plan.stats_count = 6;
  plan.loss.push_back({"empty", 1, 4, 5});
  plan.programs[0].buffers[static_cast<size_t>(plan.programs[0].stats_buffer)].bytes = 6 * 8;
  RunOptions options;
  options.data = "synthetic";
  const Result result = run_job(plan, options);
  require_success(result);
  CHECK(std::isfinite(result.ranks[0]->losses[0]));
  CHECK(result.ranks[0]->losses[0] > 0);
}

TEST_CASE("an instruction that fails stops every rank and is named") {
  test::TempFolder folder;
  // Rank 0 waits for what rank 1 cannot load: a token outside the vocabulary.
  plan::Plan plan;
  plan.batch = 1;
  plan.inputs = {{"tokens", plan::DType::kI64, {2}}};
  plan.inputs[0].vocabulary = 4;
  plan.ranks.resize(2);
  for (int32_t r = 0; r < 2; r++) {
    plan.ranks[static_cast<size_t>(r)].program = r;
    plan.ranks[static_cast<size_t>(r)].peers = {1 - r};
    plan.ranks[static_cast<size_t>(r)].shares = {{{0, 1}}};
    ProgramBuilder builder(&plan);
    const int32_t tokens = builder.buffer("tokens", plan::BufferKind::kInput, 16, plan::DType::kI64);
    // With the delays of this run, these leave the other streams the time to be where they will block.
    for (int i = 0; i < 30; i++) builder.add(plan::Opcode::kZero, {fixed(tokens, 16, plan::Access::kWrite)});
    if (r == 1) {
      builder.at(builder.add_of_samples(plan::Opcode::kLoadBatch, 0, {samples(tokens, 16, plan::Access::kWrite)})).input = 0;
    }
    const plan::Opcode opcode = r == 1 ? plan::Opcode::kSend : plan::Opcode::kRecv;
    const int32_t index = builder.add(opcode, {fixed(tokens, 16, r == 1 ? plan::Access::kRead : plan::Access::kWrite)});
    builder.at(index).peer = 0;
    builder.at(index).tensor = "tokens";
    // Other streams must stop as well: one that waits for the first, and one inside the transport, for an answer.
    const int32_t other = builder.stream("other", plan::StreamKind::kLoad);
    builder.add(plan::Opcode::kZero, {fixed(tokens, 16, plan::Access::kWrite)}, {index}, other);
    const int32_t answer = builder.buffer("answer", plan::BufferKind::kCommunication, 16);
    const int32_t back = builder.stream("back", r == 1 ? plan::StreamKind::kRecv : plan::StreamKind::kSend);
    const int32_t answered = builder.add(r == 1 ? plan::Opcode::kRecv : plan::Opcode::kSend,
                                         {fixed(answer, 16, r == 1 ? plan::Access::kWrite : plan::Access::kRead)},
                                         r == 1 ? std::vector<int32_t>{} : std::vector<int32_t>{index}, back);
    builder.at(answered).peer = 0;
    builder.at(answered).tag = 1;
    builder.finish();
  }
  auto writer = SafetensorsWriter::create(folder.file("t.safetensors"), {{"tokens", ir::DType::kI64, {1, 2}}});
  const int64_t values[] = {3, 9};
  REQUIRE(writer->append(values, sizeof values));
  REQUIRE(writer->finish());
  RunOptions options;
  options.data = folder.file("t.safetensors");
  options.deterministic_delays = true;
  const Result result = run_job(plan, options);
  REQUIRE_FALSE(result.ranks[0]);
  REQUIRE_FALSE(result.ranks[1]);
  CHECK(result.ranks[1].error().message.find("rank 1, step 0, #30 load_batch `tokens`") != std::string::npos);
  CHECK(result.ranks[1].error().message.find("element 1 of sample 0 is 9, outside the vocabulary of 4") !=
        std::string::npos);
  CHECK(result.ranks[0].error().message.find("rank 0, step 0, #30 recv `tokens` from rank 1") != std::string::npos);
  // And it is found before the first step by who looks.
  REQUIRE_FALSE(check_run(plan, options));
}

TEST_CASE("a kernel that this build lacks is named with its place in the model") {
  plan::Plan plan = single_plan(6, {6});
  plan.chunks[1].variants[0].calls[0].op = "Nonsense";
  plan.chunks[1].variants[0].calls[0].path = "model.layer";
  RunOptions options;
  options.data = "synthetic";
  const Result result = run_job(plan, options);
  REQUIRE_FALSE(result.ranks[0]);
  CHECK(result.ranks[0].error().message.find("no CPU kernel for Nonsense(f32[6, 4], f32[4, 3], f32[3]) at `model.layer`") !=
        std::string::npos);
}

TEST_CASE("gradients are saved before clipping, traces and metrics as the run was") {
  test::TempFolder folder;
  plan::Plan plan = linear_plan_base(6, 2);
  plan.clip_norm = 1e-3;
  add_split_programs(&plan, {2, 4});
  write_file(folder.file("data.safetensors"), make_samples());
  RunOptions options;
  options.data = folder.file("data.safetensors");
  options.steps = 3;
  options.save_gradients = folder.file("gradients.safetensors");
  options.trace = folder.file("trace.json");
  options.metrics = folder.file("metrics.jsonl");
  const Result result = run_job(plan, options);
  require_success(result);

  double squares = 0;
  for (const char* name : {"layer.weight", "layer.bias"}) {
    for (float g : read_tensor(options.save_gradients, name)) squares += double{g} * g;
  }
  CHECK(std::sqrt(squares) == Approx(result.ranks[0]->grad_norms[0]).epsilon(1e-5));
  CHECK(std::sqrt(squares) > 0.01);

  std::ifstream trace_file(options.trace);
  const auto trace = nlohmann::json::parse(trace_file);
  std::map<std::pair<int, int>, double> free_from;
  size_t events = 0;
  for (const auto& event : trace) {
    if (event["ph"] != "X") continue;
    events++;
    double& from = free_from[{event["pid"], event["tid"]}];
    CHECK(event["ts"].get<double>() >= from - 1e-3);
    from = event["ts"].get<double>() + event["dur"].get<double>();
  }
  CHECK(events == plan.programs[0].instructions.size() + plan.programs[1].instructions.size());

  std::ifstream metrics_file(options.metrics);
  std::string line;
  int64_t step = 0;
  while (std::getline(metrics_file, line)) {
    const auto metrics = nlohmann::json::parse(line);
    CHECK(metrics["step"] == step);
    CHECK(metrics["loss"].get<double>() == result.ranks[0]->losses[static_cast<size_t>(step)]);
    CHECK(metrics["samples_per_s"].get<double>() > 0);
    step++;
  }
  CHECK(step == 3);
}

TEST_CASE("weights come from the model file and are saved in the layout that their names stand for") {
  test::TempFolder folder;
  const std::string path = "models/mlp/mlp.onnx";
  auto reader = frontend::InitializerReader::open(path);
  REQUIRE(reader);
  auto model = MappedFile::open(path);
  REQUIRE(model);
  plan::Plan plan;
  plan.model_file = path;
  plan.model_hash = XXH3_64bits(model->bytes().data(), model->bytes().size());
  plan.ranks.resize(2);
  // Each rank has half of the parameters; the one that rank 0 has too is rank 1's.
  std::vector<std::string> names = reader->names();
  for (const std::string& name : names) {
    auto value = reader->find(name);
    REQUIRE(value);
    plan::Param param{"saved." + name, value->dtype, value->dims};
    param.initializer = name;
    param.transposed = value->dims.size() == 2 && plan.params.size() % 4 < 2;
    plan.params.push_back(param);
  }
  for (int32_t r = 0; r < 2; r++) {
    plan.ranks[static_cast<size_t>(r)].program = r;
    ProgramBuilder builder(&plan);
    for (int32_t p = 0; p < static_cast<int32_t>(plan.params.size()); p++) {
      if (p % 2 != r && p != 1) continue;
      const int64_t bytes = static_cast<int64_t>(reader->find(names[static_cast<size_t>(p)])->bytes);
      const int32_t buffer = builder.buffer("p", plan::BufferKind::kParameter, bytes);
      builder.program().params.push_back({p, buffer, 0, p % 2 == r});
    }
    builder.finish();
  }
  RunOptions options;
  options.data = "synthetic";
  options.steps = 0;
  options.save = folder.file("new/folder");
  require_success(run_job(plan, options));

  auto saved = SafetensorsFile::open(folder.file("new/folder/model.safetensors"));
  REQUIRE(saved);
  REQUIRE(saved->tensors().size() == names.size());
  int transposed = 0;
  for (const plan::Param& param : plan.params) {
    auto value = reader->find(param.initializer);
    const TensorView* tensor = saved->find(param.name);
    REQUIRE(tensor);
    REQUIRE(tensor->data.size() == value->bytes);
    if (!param.transposed) {
      CHECK(tensor->shape == value->dims);
      CHECK(std::memcmp(tensor->data.data(), value->data, value->bytes) == 0);
      continue;
    }
    transposed++;
    const int64_t rows = value->dims[0], columns = value->dims[1];
    CHECK(tensor->shape == std::vector<int64_t>{columns, rows});
    const auto* from = reinterpret_cast<const float*>(value->data);
    const Values to = read_tensor(saved->path(), param.name);
    bool equal = true;
    for (int64_t i = 0; i < rows * columns; i++) equal = equal && to[(i % columns) * rows + i / columns] == from[i];
    CHECK(equal);
  }
  CHECK(transposed > 0);
}

TEST_CASE("collectives of one group on several streams do not mix") {
  plan::Plan plan;
  plan.ranks.resize(2);
  plan.groups = {{"all", {0, 1}}};
  plan.inputs = {{"x", plan::DType::kF32, {16}}};
  plan.batch = 2;
  plan.loss = {{"first", 1, 2, 3}, {"second", 1, 4, 5}};
  plan.stats_count = 6;
  for (int32_t r = 0; r < 2; r++) {
    plan.ranks[static_cast<size_t>(r)].groups = {0};
    plan.ranks[static_cast<size_t>(r)].shares = {{{r, 1}}};
  }
  // Pairs of statistics are summed on streams of their own, at the same time: the counts say which came where.
  ProgramBuilder builder(&plan);
  const int32_t stats = builder.buffer("stats", plan::BufferKind::kStats, 48, plan::DType::kF64);
  const int32_t x = builder.buffer("x", plan::BufferKind::kInput, 64);
  builder.program().stats_buffer = stats;
  plan::Chunk count{"count", {{"x", plan::Access::kRead}, {"stats", plan::Access::kReadWrite}}};
  auto f64 = [](int64_t index) { return plan::Operand{1, index * 8, plan::DType::kF64, {1}}; };
  auto f32 = [](int64_t n) { return plan::Operand{0, 0, plan::DType::kF32, {n}}; };
  count.variants.push_back({1,
                            {{"CountElements", {}, {f32(1)}, {f64(2)}},
                             {"CountElements", {}, {f32(2)}, {f64(3)}},
                             {"CountElements", {}, {f32(9)}, {f64(4)}},
                             {"CountElements", {}, {f32(3)}, {f64(5)}}},
                            {64, 48}});
  plan.chunks = {count};
  builder.add(plan::Opcode::kZero, {fixed(stats, 48, plan::Access::kWrite)});
  const int32_t counted = builder.compute(0, 0, {samples(x, 64, plan::Access::kRead), fixed(stats, 48, plan::Access::kReadWrite)});
  for (int32_t s = 0; s < 2; s++) {
    const int32_t stream = builder.stream("reduce", plan::StreamKind::kCollective);
    const int32_t index = builder.add(plan::Opcode::kAllReduce, {fixed(stats, 16, plan::Access::kReadWrite, 16 + 16 * s)}, {counted}, stream);
    builder.at(index).group = 0;
    builder.at(index).dtype = plan::DType::kF64;
  }
  builder.finish();
  RunOptions options;
  options.data = "synthetic";
  options.steps = 40;
  options.deterministic_delays = true;
  const Result result = run_job(plan, options, true);
  require_success(result);
  for (const auto& rank : result.ranks) {
    for (double loss : rank->losses) REQUIRE(loss == 0.5 + 3);
  }
}

TEST_CASE("a model file of another content is refused") {
  plan::Plan plan = single_plan(6, {6});
  plan.params[0].init = plan::InitKind::kFromModel;
  plan.params[0].initializer = "layers.0.weight";
  plan.model_file = "models/mlp/mlp.onnx";
  plan.model_hash = 1;
  RunOptions options;
  options.data = "synthetic";
  auto checked = check_run(plan, options);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().message.find("compiled for another model") != std::string::npos);
  CHECK_FALSE(run_job(plan, options).ranks[0]);
  options.model = "no/such/file.onnx";
  checked = check_run(plan, options);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().message.find("no/such/file.onnx") != std::string::npos);
}

TEST_CASE("the learning rate follows its schedule") {
  using Kind = plan::ScheduleKind;
  const plan::LrScheduleConfig constant{Kind::kConstant, 4, 0, 0};
  CHECK(learning_rate(2, constant, 0) == 0.5);
  CHECK(learning_rate(2, constant, 2) == 1.5);
  CHECK(learning_rate(2, constant, 3) == 2);
  CHECK(learning_rate(2, constant, 1000) == 2);
  const plan::LrScheduleConfig linear{Kind::kLinear, 10, 30, 0.5};
  CHECK(learning_rate(2, linear, 9) == 2);
  CHECK(learning_rate(2, linear, 10) == 2);
  CHECK(learning_rate(2, linear, 20) == Approx(1.25));
  CHECK(learning_rate(2, linear, 30) == 0.5);
  CHECK(learning_rate(2, linear, 99) == 0.5);
  const plan::LrScheduleConfig cosine{Kind::kCosine, 0, 100, 0.5};
  CHECK(learning_rate(2, cosine, 0) == 2);
  CHECK(learning_rate(2, cosine, 25) == Approx(0.5 + 1.5 * (1 + std::sqrt(0.5)) / 2));
  CHECK(learning_rate(2, cosine, 50) == Approx(1.25));
  CHECK(learning_rate(2, cosine, 100) == Approx(0.5));
}

}  // namespace piper::runtime
