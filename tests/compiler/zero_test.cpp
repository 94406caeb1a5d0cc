// ZeRO: how often parameters are gathered, what a step sends, what a rank holds, and numbers that the strategy matrix does
// not have.
#include <algorithm>
#include <set>

#include "cli/compile_model.h"
#include "runtime/bind.h"
#include "tests/compiler/strategy_file.h"
#include "tests/frontend/onnx/graph_builder.h"

using namespace piper;
using namespace piper::testing;
using plan::Opcode;

namespace {

constexpr const char* kMse = "mse(prediction = output \"prediction\", target = input \"y\")";
constexpr const char* kMlp = "models/mlp/mlp.onnx";

plan::Plan compile(const std::string& model, const std::string& strategy, const std::map<std::string, std::string>& defines,
                   const std::map<std::string, std::string>& sets = {}) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  cli::CompileOptions options;
  options.defines = defines;
  options.sets = sets;
  auto compiled = cli::compile(model, strategy, options, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(compiled.has_value());
  return std::move(compiled->plan);
}

int64_t count(const plan::Plan& plan, int rank, Opcode opcode) {
  const auto& list = plan.programs[static_cast<size_t>(plan.ranks[static_cast<size_t>(rank)].program)].instructions;
  return std::count_if(list.begin(), list.end(), [&](const plan::Instruction& in) { return in.opcode == opcode; });
}

// Sixteen equal layers, so that the backward of every stage reads parameters; returns the name of the output.
std::string write_layers(const test::TempFolder& folder, const std::string& name) {
  test::GraphBuilder g(17);
  std::string h = g.input("x", {"batch", 16});
  for (int i = 0; i < 16; ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    h = g.node("Gemm", {h, g.weight(layer + ".fc.weight", {16, 16}), g.weight(layer + ".fc.bias", {16})}, {{"transB", 1}}, fmt::format("/{}/fc/Gemm", layer));
    h = g.node("Tanh", {h}, {}, fmt::format("/{}/Tanh", layer));
  }
  g.output(h);
  folder.write(name, g.bytes());
  return h;
}

// Gathers of one replica of each pipeline rank, with a bucket per stage.
std::vector<int64_t> gathers(const std::string& schedule, int p, int m, int prefetch) {
  std::ifstream in("strategies/" + schedule + ".piper");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::string plain = "zero zero bucket bucket";
  const size_t at = text.find(plain);
  REQUIRE(at != std::string::npos);
  text.replace(at, plain.size(), fmt::format("zero 3 bucket 64MiB prefetch {}", prefetch));
  const StrategyFile file(text, "strategies");  // its library is there
  const test::TempFolder folder;
  const std::string output = write_layers(folder, "layers.onnx");
  const plan::Plan plan = compile(folder.file("layers.onnx"), file.path(), {{"pp", std::to_string(p)}, {"dp", "2"}, {"microbatches", std::to_string(m)}},
                                  {{"train.loss", fmt::format("mean(output \"{}\")", output)}, {"train.batch", "32"}});
  std::vector<int64_t> counts;
  for (int r = 0; r < p; ++r) counts.push_back(count(plan, 2 * r, Opcode::kAllGather));
  return counts;
}

// Bytes of parameters that the optimizer updates, padded as in the buckets.
int64_t parameter_bytes(const plan::Plan& plan) {
  int64_t bytes = 0;
  for (const plan::Update& update : plan.updates) bytes += update.runs.empty() ? 0 : update.runs.back().end * 4;
  return bytes;
}

// What rank 0 sends in a step, by the counter that the runtime reports.
int64_t sent(const plan::Plan& plan) {
  auto bound = runtime::bind_program(plan, 0, 1);
  REQUIRE(bound.has_value());
  return bound->bytes_sent;
}

}  // namespace

TEST_CASE("stages are gathered and dropped as often as the reference simulator says") {
  using Counts = std::vector<int64_t>;
  // simsched.py unshard P M, keep=1 and keep=2: prefetch gathers one more than is used.
  CHECK(gathers("gpipe", 4, 8, 0) == Counts{1, 1, 1, 1});
  CHECK(gathers("1f1b", 4, 8, 0) == Counts{1, 1, 1, 1});
  CHECK(gathers("zb_h1", 4, 8, 0) == Counts{1, 1, 1, 1});
  CHECK(gathers("interleaved", 4, 8, 0) == Counts{11, 19, 13, 5});
  CHECK(gathers("interleaved", 4, 8, 1) == Counts{2, 2, 2, 2});
  CHECK(gathers("looped_bfs", 4, 8, 0) == Counts{3, 3, 3, 3});
  CHECK(gathers("looped_bfs", 4, 8, 1) == Counts{2, 2, 2, 2});
  CHECK(gathers("interleaved", 2, 4, 0) == Counts{11, 5});
  CHECK(gathers("interleaved", 2, 4, 1) == Counts{2, 2});
  CHECK(gathers("looped_bfs", 2, 4, 0) == Counts{3, 3});
}

TEST_CASE("a step sends what theory says, by the runtime's counter") {
  for (const int n : {2, 3, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int m : {1, 4}) {
        const plan::Plan plan = compile(kMlp, "strategies/dp.piper",
                                        {{"dp", std::to_string(n)}, {"zero", std::to_string(zero)}, {"bucket", "64MiB"}, {"microbatches", std::to_string(m)}},
                                        {{"train.loss", kMse}, {"train.batch", "24"}});
        INFO("n=" << n << " zero=" << zero << " microbatches=" << m);
        const int64_t bytes = parameter_bytes(plan), once = (n - 1) * (bytes / n);
        // The statistics and the count of valid targets, as every level has them.
        const int64_t statistics = 2 * (n - 1) * plan.stats_count * 8 / n + 2 * (n - 1) * 8 / n;
        // All-reduce: reduce-scatter and all-gather. Level 2 scatters after each run of backwards, and level 3 gathers
        // the one bucket once: it stays for the whole step.
        const int64_t scatters = zero >= 2 ? m : 1;
        CHECK(sent(plan) - statistics == (zero == 0 ? 2 * (n - 1) * bytes / n : (scatters + 1) * once));
        CHECK(count(plan, 0, Opcode::kAllReduce) == (zero == 0 ? 3 : 2));
        CHECK(count(plan, 0, Opcode::kReduceScatter) == (zero == 0 ? 0 : scatters));
        CHECK(count(plan, 0, Opcode::kAllGather) == (zero == 0 ? 0 : 1));
      }
    }
  }
}

TEST_CASE("prefetch bounds what is gathered, and with it the peak") {
  auto arena = [](const char* prefetch) {
    const plan::Plan plan = compile("models/gpt_tiny/gpt_tiny.onnx", "strategies/fsdp.piper", {{"dp", "4"}, {"bucket", "16KiB"}, {"prefetch", prefetch}});
    return std::pair{plan.programs[0].arena_bytes, count(plan, 0, Opcode::kAllGather)};
  };
  const auto [none, many_gathers] = arena("0");
  const auto [one, fewer_gathers] = arena("1");
  const auto [three, few_gathers] = arena("3");
  const auto [all, least_gathers] = arena("1000");
  INFO(none << " " << one << " " << three << " " << all << " bytes; " << many_gathers << " " << fewer_gathers << " " << few_gathers << " " << least_gathers);
  CHECK(none < one);
  CHECK(one < three);
  CHECK(three < all);
  CHECK(many_gathers >= fewer_gathers);
  CHECK(fewer_gathers > few_gathers);
  CHECK(few_gathers > least_gathers);
}

TEST_CASE("each level takes its part of the persistent memory away") {
  auto persistent = [](int zero) {
    const plan::Plan plan = compile(kMlp, "strategies/dp.piper", {{"dp", "4"}, {"zero", std::to_string(zero)}}, {{"train.loss", kMse}, {"train.batch", "24"}});
    std::map<plan::BufferKind, int64_t> bytes;
    for (const plan::Buffer& b : plan.programs[0].buffers) bytes[b.kind] += b.persistent ? b.bytes : 0;
    return std::pair{bytes, parameter_bytes(plan)};
  };
  using enum plan::BufferKind;
  for (const int zero : {0, 1, 2, 3}) {
    const auto [bytes, whole] = persistent(zero);
    INFO("zero=" << zero);
    CHECK(bytes.at(kOptimizer) == (zero >= 1 ? 2 * whole / 4 : 2 * whole));
    CHECK(bytes.at(kGradient) == (zero >= 2 ? whole / 4 : whole));
    // Levels 1 and 2 update a shard of its own and gather it into the whole.
    CHECK(bytes.at(kParameter) == (zero == 3 ? whole / 4 : zero == 0 ? whole : whole + whole / 4));
  }
}

TEST_CASE("frozen parameters are sharded at level 3, and only there") {
  const std::string end = "freeze param \"layers.0.**\"\nfreeze param \"layers.5.**\"\n" + train(kMse, "adamw(lr = 1e-2, eps = 1e-3)", 9);
  for (const int zero : {1, 2, 3}) {
    check_equal("mlp", fmt::format("mesh dev[dp = 3]\nreplicate all() over dp zero {} bucket 1KiB\nsplit all() into 2 as mb\n{}", zero, end), end);
  }
}

TEST_CASE("levels mix: by axis, by region, and for what regions share") {
  const std::string end = train("cross_entropy(logits = output \"logits\", target = input \"labels\")", "adamw(lr = 1e-3, eps = 1e-3)", 12);
  const std::string tags = "tag layer = i where path \"**.h.{i}.**\"\ntag stage = balanced(layer, 2)\n";
  const std::string pipeline = tags + "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1) on dev[pp = 1]\nsplit all() into 3 as mb\n";
  for (const int a : {0, 1, 2, 3}) {
    for (const int b : {0, 1, 2, 3}) {
      check_equal("gpt_tiny", fmt::format("mesh dev[a = 2, b = 2]\nreplicate all() over a zero {} bucket 12KiB\nreplicate all() over b zero {} bucket 12KiB\n"
                                          "split all() into 3 as mb\n{}", a, b, end), end);
    }
  }
  // The embedding is read by both stages: it is divided as the one that asks for less.
  check_equal("gpt_tiny", "mesh dev[pp = 2, dp = 2]\nreplicate all(stage = 0) over dp zero 3 bucket 12KiB\nreplicate all(stage = 1) over dp zero 1 bucket 12KiB\n" +
                              pipeline + end, end);
  check_equal("gpt_tiny", "mesh dev[a = 2, pp = 2, b = 2]\nreplicate all() over a zero 1 bucket 12KiB\nreplicate all() over b zero 3 bucket 12KiB prefetch 0\n" +
                              pipeline + end, end);
}

TEST_CASE("a stage in two places may be sharded in both") {
  const std::string end = train(kMse, "sgd(lr = 0.05, momentum = 0.9)", 11);
  for (const int zero : {1, 2, 3}) {
    check_equal("mlp", fmt::format("mesh dev[pp = 2, dp = 2]\nreplicate all() over dp zero {} bucket 1KiB\ntag layer = i where path \"layers.{{i}}.**\"\n"
                                   "tag stage = balanced(layer, 2)\nsplit all() into 4 as mb\n"
                                   "place all(stage = 0, mb = 0..2) on dev[pp = 0]\nplace all(stage = 1, mb = 0..2) on dev[pp = 1]\n"
                                   "place all(stage = 0, mb = 2..4) on dev[pp = 1]\nplace all(stage = 1, mb = 2..4) on dev[pp = 0]\n{}", zero, end), end);
  }
}
