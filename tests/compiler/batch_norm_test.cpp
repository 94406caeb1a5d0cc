// Batch normalisation under strategies: equal numbers for equal groups, running statistics, and
// what is refused.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/compiler/bench.h"
#include "tests/frontend/onnx/graph_builder.h"
#include "verify/verify.h"

using namespace piper;
using p1::Result;
using testing::Bench;
using testing::Values;
using testing::waves;
using test::GraphBuilder;

namespace {

constexpr int kSamples = 48;
constexpr double kMomentum = 0.8;
struct Data {
  Values x = waves(kSamples * 2 * 6 * 6, 1), t = waves(kSamples * 3, 2);
};

// A network of four layers with three batch normalisations, the last one over plain vectors (of a
// group of one or two samples it leaves nothing, and is left out).
struct Network {
  GraphBuilder g{17};
  bool training;

  explicit Network(bool train = true, bool vectors = true) : training(train) {
    const std::string x = g.input("x", {"batch", 2, 6, 6});
    std::string h = conv("layers.0.conv", x, {5, 2, 3, 3});
    h = norm("layers.0.bn", h, 5);
    const std::string skip = g.node("Relu", {h}, {}, "/layers.0/Relu");
    h = conv("layers.1.conv", skip, {5, 5, 3, 3});
    h = norm("layers.1.bn", h, 5);
    h = g.node("Relu", {g.node("Add", {h, skip}, {}, "/layers.1/Add")}, {}, "/layers.1/Relu");
    h = g.node("MaxPool", {h}, {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}},
               "/layers.2/pool/MaxPool");
    h = conv("layers.2.conv", h, {8, 5, 3, 3});
    h = g.node("Flatten", {g.node("GlobalAveragePool", {h}, {}, "/layers.2/avg/GlobalAveragePool")}, {},
               "/layers.2/Flatten");
    if (vectors) h = norm("layers.2.bn", h, 8);
    h = g.node("Gemm", {h, g.weight("layers.3.fc.weight", {3, 8}), g.weight("layers.3.fc.bias", {3})}, {{"transB", 1}},
               "/layers.3/fc/Gemm");
    g.output(h);
  }

  static std::string path(std::string name) {
    for (const char* part : {".conv", ".bn"}) {
      if (const size_t at = name.find(part); at != std::string::npos) name[at] = '/';
    }
    return "/" + name;
  }
  // Without a bias: the normalisation takes it away again, and its gradient is rounding only.
  std::string conv(const std::string& name, const std::string& x, const std::vector<int64_t>& shape) {
    return g.node("Conv", {x, g.weight(name + ".weight", shape)}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
                  path(name) + "/Conv");
  }
  std::string norm(const std::string& name, const std::string& x, int64_t channels) {
    const std::vector<double> zeros(static_cast<size_t>(channels), 0.0), ones(static_cast<size_t>(channels), 1.0);
    const std::vector<std::string> inputs{
        x, g.weight(name + ".weight", {channels}), g.weight(name + ".bias", {channels}),
        g.floats(name + ".running_mean", {channels}, zeros), g.floats(name + ".running_var", {channels}, ones)};
    if (!training)
      return g.node("BatchNormalization", inputs, {{"momentum", kMomentum}}, path(name) + "/BatchNormalization");
    const std::string y = g.node_n("BatchNormalization", 3, inputs, {{"training_mode", 1}, {"momentum", kMomentum}})[0];
    g.last_node().set_name(path(name) + "/BatchNormalization");
    return y;
  }
};

Bench bench_of(const GraphBuilder& graph, const Data& data = {}) {
  return Bench(graph, {{"x", {kSamples, 2, 6, 6}, data.x}, {"t", {kSamples, 3}, data.t}});
}

void check_equal(const Result& ours, const Result& theirs) {
  REQUIRE(ours.error == "");
  REQUIRE(theirs.error == "");
  const p1::Difference d = p1::compare(ours, theirs);
  INFO("largest difference in " << d.worst);
  CHECK(d.loss < 1e-5);
  CHECK(d.norm < 1e-5);
  CHECK(d.gradients < 1e-5);
  CHECK(d.weights < 1e-5);
  CHECK(ours.weights.count("layers.1.bn.running_var") == 1);
  CHECK(ours.gradients.count("layers.1.bn.running_var") == 0);
}

using testing::data_parallel;
std::string pipeline(const char* schedule, int dp, int microbatches) {
  return fmt::format(
      "use pipeline\nmesh dev[pp = 2, dp = {}]\ntag layer = i where path \"layers.{{i}}.**\"\ntag "
      "stage = balanced(layer, 2)\n"
      "for s in 0..2 {{ place all(stage = s) on dev[pp = s] }}\nreplicate all() over dp\nsplit "
      "all() into {} as mb\n"
      "for r in 0..2 {{ order pipeline.{}(r, 2, {}) }}\n",
      dp, microbatches, schedule, microbatches);
}

}  // namespace

TEST_CASE("equal groups give equal numbers under every strategy") {
  const Bench bench = bench_of(Network().g);
  const Result reference = bench.run(bench.strategy("", 16, "coupled_groups 4  clip_norm 0.5"));
  for (const std::string& text :
       {data_parallel(1, 4), data_parallel(2, 1), data_parallel(2, 2), data_parallel(4, 1), pipeline("gpipe", 1, 4),
        pipeline("one_f_one_b", 1, 4), pipeline("one_f_one_b", 2, 2), pipeline("zb_h1", 2, 2)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 16, "coupled_groups 4  clip_norm 0.5")), reference);
  }
  check_equal(bench.run(bench.strategy(pipeline("one_f_one_b", 2, 2), 16, "coupled_groups 4  clip_norm 0.5"), 3, true),
              reference);
  // It matters: the whole batch as one group is another training.
  const Result whole = bench.run(bench.strategy("", 16, "clip_norm 0.5"));
  CHECK(p1::compare(whole, reference).gradients > 1e-3);
}

TEST_CASE("uneven cuts of whole groups give equal numbers") {
  const Bench bench = bench_of(Network(true, false).g);
  // 14 samples, 7 groups of 2: microbatches of 6, 4 and 4 are cut at 5, which is no border of a
  // group.
  CHECK(bench.messages(bench.strategy(data_parallel(1, 3), 14, "coupled_groups 7")).find("E0507") != std::string::npos);
  const std::string thirteen = "coupled_groups 13";
  const Result reference = bench.run(bench.strategy("", 13, thirteen));
  check_equal(bench.run(bench.strategy(data_parallel(2, 3), 13, thirteen)), reference);
  check_equal(bench.run(bench.strategy(pipeline("one_f_one_b", 2, 4), 13, thirteen)), reference);
}

TEST_CASE("running statistics are the exponential average over the groups of the batch") {
  GraphBuilder g(17);
  const std::string x = g.input("x", {"batch", 2, 6, 6});
  const auto bn = g.node_n("BatchNormalization", 3,
                           {x, g.weight("bn.weight", {2}), g.weight("bn.bias", {2}),
                            g.floats("bn.running_mean", {2}, {0.25, -1}), g.floats("bn.running_var", {2}, {1, 3})},
                           {{"training_mode", 1}, {"momentum", kMomentum}});
  g.output(g.node("Gemm", {g.node("Flatten", {bn[0]}), g.weight("fc.weight", {3, 72})}, {{"transB", 1}}));
  const Data data;
  const Bench bench = bench_of(g, data);
  double mean[2] = {0.25, -1}, variance[2] = {1, 3};
  for (int group = 0; group < 3 * 4; ++group) {  // three steps of four groups of two samples
    for (int c = 0; c < 2; ++c) {
      double sum = 0, squares = 0;
      auto each = [&](auto fn) {
        for (int n = 2 * group; n < 2 * group + 2; ++n) {
          for (int i = 0; i < 36; ++i) fn(static_cast<double>(data.x[static_cast<size_t>((n * 2 + c) * 36 + i)]));
        }
      };
      each([&](double v) { sum += v; });
      each([&](double v) { squares += (v - sum / 72) * (v - sum / 72); });
      mean[c] = kMomentum * mean[c] + (1 - kMomentum) * sum / 72;
      variance[c] = kMomentum * variance[c] + (1 - kMomentum) * squares / 72;
    }
  }
  for (const std::string& text : {std::string(), data_parallel(2, 2)}) {
    const Result result = bench.run(bench.strategy(text, 8, "coupled_groups 4"));
    REQUIRE(result.error == "");
    for (size_t c = 0; c < 2; ++c) {
      CHECK(result.weights.at("bn.running_mean")[c] == Approx(mean[c]).epsilon(1e-5).margin(1e-6));
      CHECK(result.weights.at("bn.running_var")[c] == Approx(variance[c]).epsilon(1e-5));
    }
  }
}

TEST_CASE("a step whose gradients are not finite does not advance the statistics") {
  Data data;
  data.t[static_cast<size_t>(8 * 3)] = NAN;  // a target of the second step
  const Bench bench = bench_of(Network().g, data);
  const Result one = bench.run(bench.strategy("", 8, ""), 1), two = bench.run(bench.strategy("", 8, ""), 2);
  REQUIRE(two.error == "");
  CHECK(two.weights == one.weights);
  const Result finite = bench_of(Network().g).run(bench.strategy("", 8, ""), 2);
  CHECK(finite.weights.at("layers.0.bn.running_mean") != one.weights.at("layers.0.bn.running_mean"));
}

TEST_CASE("the inference form trains as exported or, when asked, as the training form does") {
  const Bench inference = bench_of(Network(false).g), training = bench_of(Network(true).g);
  const std::string text = inference.strategy("", 8, "batch_norm training");
  check_equal(inference.run(text), training.run(training.strategy("", 8, "")));
  check_equal(inference.run(inference.strategy(data_parallel(2, 2), 16, "batch_norm training  coupled_groups 4")),
              training.run(training.strategy("", 16, "coupled_groups 4")));

  CHECK(inference.messages(inference.strategy("", 8, "")).find("warning[W0501]") != std::string::npos);
  CHECK(inference.messages(inference.strategy("", 8, "batch_norm as_exported")) == "");
  CHECK(inference.messages(text) == "");
  CHECK(training.messages(training.strategy("", 8, "")) == "");
  // Sample-wise then: no groups are needed, and the statistics of the file stay.
  const Result fixed = inference.run(inference.strategy(data_parallel(2, 2), 8, "batch_norm as_exported"));
  check_equal(fixed, inference.run(inference.strategy("", 8, "batch_norm as_exported")));
  CHECK(fixed.weights.at("layers.0.bn.running_mean") == std::vector<double>(5, 0.0));
  CHECK(fixed.weights.at("layers.0.bn.running_var") == std::vector<double>(5, 1.0));
}

TEST_CASE("a cut batch needs groups, and whole ones") {
  const Bench bench = bench_of(Network().g);
  auto error = [&](const std::string& text, int batch, const std::string& more) {
    return bench.messages(bench.strategy(text, batch, more));
  };
  const std::string none = error(data_parallel(2, 1), 16, "");
  CHECK(none.find("error[E0507]") != std::string::npos);
  CHECK(none.find("/layers.0/bn/BatchNormalization") != std::string::npos);
  CHECK(none.find("coupled_groups G") != std::string::npos);
  CHECK(error("", 16, "") == "");
  CHECK(error(data_parallel(1, 1), 16, "") == "");
  CHECK(error("", 16, "coupled_groups 3").find("a batch of 16 samples is not 3 groups of equal size") !=
        std::string::npos);
  const std::string parts = error(data_parallel(4, 1), 24, "coupled_groups 6");
  CHECK(parts.find("the samples 0 to 5, which are not whole groups of 4 (`coupled_groups 6` of a "
                   "batch of 24)") != std::string::npos);
  CHECK(error(data_parallel(3, 1), 24, "coupled_groups 6") == "");
}

TEST_CASE(
    "the verifier sees statistics that miss a contribution, count in the norm, or are updated "
    "otherwise") {
  using plan::Opcode;
  const Bench bench = bench_of(Network().g);
  const plan::Plan good = bench.compile(bench.strategy(data_parallel(2, 2), 16, "coupled_groups 4  clip_norm 1.0"));
  CHECK(verify::verify(good).empty());
  const auto held = std::find_if(good.params.begin(), good.params.end(),
                                 [](const plan::Param& p) { return p.name == "layers.1.bn.running_mean"; });
  REQUIRE(held != good.params.end());
  CHECK(held->statistics);
  CHECK(held->kept == Approx(std::pow(kMomentum, 4)));
  const auto update =
      std::find_if(good.updates.begin(), good.updates.end(), [](const plan::Update& u) { return u.statistics; });
  REQUIRE(update != good.updates.end());
  const std::string grads = update->name + " grads";
  // What is found in a plan that `change` spoils.
  auto finding = [&](auto change) {
    plan::Plan plan = good;
    change(plan);
    std::string all;
    for (const verify::Finding& f : verify::verify(plan)) all += verify::to_string(f) + "\n";
    return all;
  };
  auto first = [&](plan::Plan& plan, Opcode opcode, const std::string& tensor) -> plan::Instruction& {
    auto& all = plan.programs[0].instructions;
    const auto it = std::find_if(all.begin(), all.end(), [&](const plan::Instruction& in) {
      return in.opcode == opcode && in.tensor == tensor;
    });
    REQUIRE(it != all.end());
    return *it;
  };
  CHECK(finding([&](plan::Plan& p) {
          p.updates[static_cast<size_t>(update - good.updates.begin())].runs[0].kept = 0.5;
        }).find("not advanced as such") != std::string::npos);
  CHECK(finding([&](plan::Plan& p) {
          p.params[static_cast<size_t>(held - good.params.begin())].statistics = false;
        }).find("is frozen but written") != std::string::npos);
  CHECK(finding([&](plan::Plan& p) { first(p, Opcode::kAllReduce, grads).ranges[0].fixed /= 2; }).find("E0607") !=
        std::string::npos);
  const std::string counted = finding([&](plan::Plan& p) {
    auto norm = std::find_if(p.programs[0].instructions.begin(), p.programs[0].instructions.end(),
                             [](const plan::Instruction& in) { return in.opcode == Opcode::kNorm; });
    norm->ranges.insert(norm->ranges.begin(), first(p, Opcode::kUpdate, update->name).ranges[1]);
    norm->waits.push_back(
        static_cast<int32_t>(&first(p, Opcode::kAllReduce, grads) - p.programs[0].instructions.data()));
  });
  INFO(counted);
  CHECK(counted.find("the norm counts the contributions to") != std::string::npos);
}

TEST_CASE("frozen scale and bias leave the statistics to advance") {
  const Bench bench = bench_of(Network().g);
  const std::string freeze = "freeze param \"layers.0.**\"\n";
  const Result frozen = bench.run(bench.strategy(freeze, 8, "")),
               cut = bench.run(bench.strategy(freeze, 8, "coupled_groups 1"));
  check_equal(frozen, cut);
  CHECK(frozen.weights.at("layers.0.bn.running_mean") != std::vector<double>(5, 0.0));
  CHECK(frozen.gradients.count("layers.0.bn.weight") == 0);
}

TEST_CASE("what statistics cannot be is refused") {
  auto graph = [](bool twice) {
    GraphBuilder g(17);
    const std::string x = g.input("x", {"batch", 2, 6, 6}), scale = g.weight("bn.weight", {2}),
                      bias = g.weight("bn.bias", {2});
    const std::string mean = g.floats("bn.running_mean", {2}, {0, 0}),
                      variance = g.floats("bn.running_var", {2}, {1, 1});
    auto bn = g.node_n("BatchNormalization", 3, {x, scale, bias, mean, variance}, {{"training_mode", 1}});
    if (twice) bn = g.node_n("BatchNormalization", 3, {bn[0], scale, bias, mean, variance}, {{"training_mode", 1}});
    std::string h = g.node("Flatten", {g.node("GlobalMaxPool", {bn[0]})});
    if (!twice) h = g.node("Add", {h, bn[1]});  // the graph reads the running mean after the step
    g.output(g.node("Gemm", {h, g.weight("fc.weight", {3, 2})}, {{"transB", 1}}));
    return g;
  };
  const Bench twice = bench_of(graph(true)), reads = bench_of(graph(false));
  const std::string messages = twice.messages(twice.strategy("", 8, ""));
  CHECK(messages.find("error[E0510]") != std::string::npos);
  CHECK(messages.find("advances `bn.running_mean`, which another operation advances too") != std::string::npos);
  CHECK(reads.messages(reads.strategy("", 8, "")).find("error[E0509]") != std::string::npos);
  CHECK(reads.messages(reads.strategy("", 8, "coupled_groups 2")).find("error[E0507]") != std::string::npos);
}
