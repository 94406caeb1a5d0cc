// A gradient that is not finite on one rank skips the step on all.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/compiler/strategy_file.h"
#include "tests/frontend/onnx/graph_builder.h"

using namespace piper;
using namespace piper::testing;

namespace {

constexpr const char* kData = "models/mlp/data.safetensors";  // x [32, 16], y [32, 8]
constexpr float kHuge = 1e37f;

// Two layers. The weights of the first are so small that an input of kHuge gives ordinary activations; the gradient of
// these weights then is beyond f32, and everything else is finite.
std::string write_model(const test::TempFolder& folder) {
  test::GraphBuilder g(17);
  std::string h = g.input("x", {"batch", 16});
  h = g.node("Gemm", {h, g.weight("layers.0.weight", {12, 16}, 1 / static_cast<double>(kHuge))}, {{"transB", 1}}, "/layers.0/Gemm");
  h = g.node("Tanh", {h}, {}, "/layers.0/Tanh");
  h = g.node("Gemm", {h, g.weight("layers.1.weight", {8, 12}), g.weight("layers.1.bias", {8})}, {{"transB", 1}}, "/layers.1/Gemm");
  g.output(h);
  folder.write("model.onnx", g.bytes());
  return h;
}

// The data with a huge input in one sample.
void write_data(const test::TempFolder& folder, size_t sample) {
  std::ifstream in(kData, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const size_t x = nlohmann::json::parse(bytes.substr(8, header)).at("x").at("data_offsets")[0];
  for (size_t i = 0; i < 16; ++i) std::memcpy(bytes.data() + 8 + header + x + 4 * (16 * sample + i), &kHuge, 4);
  folder.write("data.safetensors", bytes);
}

}  // namespace

TEST_CASE("a gradient that is not finite on one stage of one replica skips the step everywhere") {
  const test::TempFolder folder;
  const std::string output = write_model(folder);
  write_data(folder, 6);  // of the first step, its last microbatch and its second replica
  const std::string end = train(fmt::format("1e5 * mse(prediction = output \"{}\", target = input \"y\")", output),
                                "sgd(lr = 1e-7, momentum = 0.9)", 8, "on_nonfinite skip");
  const std::string pipeline =
      "mesh dev[pp = 2, dp = 2]\ntag stage = i where path \"layers.{i}.**\"\nplace all(stage = 0) on dev[pp = 0]\n"
      "place all(stage = 1) on dev[pp = 1]\nsplit all() into 2 as mb\n";
  auto result = [&](const std::string& text, const std::string& data, int steps) {
    const StrategyFile file(text);
    p1::Cell cell = cell_of(file, "mlp");
    cell.model.file = folder.file("model.onnx");
    cell.model.data = data;
    const p1::Result r = p1::run(cell, steps);
    INFO(text << r.error);
    REQUIRE(r.error.empty());
    return r;
  };
  const std::string bad = folder.file("data.safetensors");
  const p1::Result initial = result(train(fmt::format("mse(prediction = output \"{}\", target = input \"y\")", output), "sgd(lr = 0.0)", 8), kData, 1);
  const p1::Result single = result(end, bad, 3);
  CHECK(std::isfinite(single.losses[0]));
  auto finite = [](const std::vector<double>& values) { return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }); };
  CHECK_FALSE(finite(single.gradients.at("layers.0.weight")));
  CHECK(finite(single.gradients.at("layers.1.weight")));
  CHECK(single.weights.at("layers.1.bias") != initial.weights.at("layers.1.bias"));
  for (const char* replicas : {"replicate all() over dp\n", "replicate all() over dp zero 2\n", "replicate all() over dp zero 3\n"}) {
    CHECK(result(pipeline + replicas + end, bad, 1).weights == initial.weights);
    CHECK(result(pipeline + replicas + end, kData, 1).weights.at("layers.1.bias") != initial.weights.at("layers.1.bias"));
    const p1::Result after = result(pipeline + replicas + end, bad, 3);
    for (const auto& [name, values] : single.weights) CHECK(p1::relative_difference(after.weights.at(name), values) < 1e-5);
  }
}
