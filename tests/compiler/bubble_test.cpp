// The bubble that a compilation predicts against the formulas of the schedules.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "cli/compile_model.h"
#include "passes/costs.h"
#include "passes/pipeline.h"
#include "tests/frontend/onnx/graph_builder.h"

using namespace piper;

namespace {

// `layers` equal layers, so wide that everything else costs nothing.
std::string write_model(const test::TempFolder& folder, int layers, std::string* output) {
  test::GraphBuilder g(17);
  // The first layer has an input gradient, too.
  std::string x = g.node("Add", {g.input("x", {"batch", 256}), g.weight("model.layers.0.bias", {256})}, {}, "/model/layers.0/Add");
  for (int i = 0; i < layers; ++i) {
    const std::string weight = g.weight(fmt::format("model.layers.{}.weight", i), {256, 256});
    x = g.node("MatMul", {x, weight}, {}, fmt::format("/model/layers.{}/MatMul", i));
  }
  g.output(x);
  *output = x;
  return folder.write("model.onnx", g.bytes());
}

passes::Bubble bubble_of(const std::string& order, int pp, int microbatches) {
  const test::TempFolder folder;
  std::filesystem::create_directory_symlink(std::filesystem::absolute("strategies/lib"), folder.path() / "lib");
  std::string output;
  const std::string file = write_model(folder, pp, &output);
  const std::string strategy = folder.write("a.piper", fmt::format(R"(use pipeline
mesh dev[pp = {0}]
tag stage = i where path "model.layers.{{i}}.**"
for s in 0..{0} {{ place all(stage = s) on dev[pp = s] }}
split all() into {1} as mb
for r in 0..{0} {{ order pipeline.{2}(r, {0}, {1}) }}
train {{ loss mse(prediction = output "{3}", target = input "t")  optimizer sgd(lr = 0.1)  batch {4} }}
)", pp, microbatches, order, output, 4 * microbatches));
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  ir::Model model;
  ir::Strategy parsed;
  const bool loaded = cli::load_strategy(file, strategy, {}, diagnostics, model, parsed);
  INFO(diagnostics.render());
  REQUIRE(loaded);
  const auto dag = passes::run_passes(model, parsed, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(dag);
  return passes::predicted_bubble(*dag, parsed.train.batch);
}

}  // namespace

TEST_CASE("predicted bubbles are those of the formulas", "[bubble]") {
  // A forward costs 1, a backward 2, each half of it 1; the rest, such as the loss, is below half a percent.
  const int pp = GENERATE(2, 4), m = GENERATE(4, 8, 16);
  constexpr double kRest = 0.004;
  const double fill = pp - 1;
  INFO("pp " << pp << ", m " << m);
  for (const char* order : {"gpipe", "one_f_one_b"}) {
    INFO(order);
    CHECK(bubble_of(order, pp, m).global == Approx(fill / (m + fill)).margin(kRest));
  }
  if (m < 2 * pp - 1) return;  // zb_h2 needs as many
  const passes::Bubble h1 = bubble_of("zb_h1", pp, m), h2 = bubble_of("zb_h2", pp, m);
  CHECK(h1.global == Approx(fill / (3 * m + fill)).margin(kRest));
  CHECK(h1.inner > 0.01);
  CHECK(h2.inner == Approx(0).margin(kRest));
  CHECK(h2.global == Approx(h1.global).margin(kRest));  // with a barrier at the step's end
}
