// The text and the JSON of `inspect`, against files that PIPER_UPDATE_GOLDEN=1 writes again.
#include "inspect/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "inspect/open_model.h"
#include "tests/frontend/onnx/graph_builder.h"

using namespace piper;

namespace {

void check_golden(const std::string& path, const std::string& text) {
  if (std::getenv("PIPER_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  REQUIRE(file.good());
  std::stringstream golden;
  golden << file.rdbuf();
  CHECK(text == golden.str());
}

struct Opened {
  std::optional<ir::Model> model;
  frontend::ImportNotes notes;
  std::string messages;
};

Opened open(const std::string& path, const frontend::ImportOptions& options = {}) {
  Opened out;
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  out.model = inspect::open_model(path, options, out.notes, diagnostics);
  out.messages = diagnostics.render();
  return out;
}

Opened open(const test::GraphBuilder& graph) {
  const test::TempFolder folder;
  return open(folder.write("model.onnx", graph.bytes()));
}

std::string text_of(const Opened& opened, const inspect::InspectOptions& options = {}) {
  INFO(opened.messages);
  REQUIRE(opened.model);
  return inspect::inspect_text(inspect::inspect_model("model.onnx", *opened.model, opened.notes, {}), options);
}

size_t lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// `layers` layers with four operations each.
test::GraphBuilder deep_model(int layers) {
  test::GraphBuilder g;
  std::string x = g.input("x", {"batch", 4});
  for (int i = 0; i < layers; i++) {
    const std::string in = x;
    for (const char* part : {"up", "down"}) {
      const std::string weight = g.weight(fmt::format("model.layers.{}.{}.weight", i, part), {4, 4});
      x = g.node("Relu", {g.node("MatMul", {x, weight}, {}, fmt::format("/model/layers.{}/{}/MatMul", i, part))}, {},
                 fmt::format("/model/layers.{}/Relu_{}", i, part));
    }
    x = g.node("Add", {x, in}, {}, fmt::format("/model/layers.{}/Add", i));
  }
  g.output(x);
  return g;
}

}  // namespace

TEST_CASE("inspect shows modules, parameters and totals", "[inspect]") {
  const Opened mlp = open("models/mlp/mlp.onnx");
  REQUIRE(mlp.model);
  const auto inspection = inspect::inspect_model("models/mlp/mlp.onnx", *mlp.model, mlp.notes, {});
  check_golden("tests/golden/inspect/mlp.txt", inspect::inspect_text(inspection, {}));
  check_golden("tests/golden/inspect/mlp.json", inspect::inspect_json(inspection));
}

TEST_CASE("inspect --params says what a folded weight is stored as, and why tensors are what they are", "[inspect]") {
  test::GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string up = g.node("MatMul", {x, g.weight("onnx::MatMul_12", {4, 6})}, {}, "/up/MatMul");
  g.output(g.node("Add", {up, g.weight("up.mask", {6})}, {}, "/up/Add"));
  inspect::InspectOptions options;
  options.parameters = true;
  const std::string text = text_of(open(g), options);
  INFO(text);
  CHECK(has(text, "up.weight  parameter  f32[4, 6]"));
  CHECK(has(text, "transposed by constant folding"));
  CHECK(has(text, "onnx::MatMul_12\n"));
  CHECK(has(text, "up.mask    buffer     f32[6]"));
  CHECK(has(text, "its name is one of buffers"));
}

TEST_CASE("a model of ten thousand nodes reads on one screen", "[inspect]") {
  const Opened deep = open(deep_model(2000));
  REQUIRE(deep.model);
  REQUIRE(deep.model->ops.size() == 10000);
  const std::string text = text_of(deep);
  INFO(text);
  CHECK(lines(text) < 24);
  CHECK(has(text, "list    path \"model.layers.{i}.**\", i = 0..1999\n"));
  CHECK(has(text, "    layers.{0..1999}  x 2000       10000       64000"));
  CHECK(has(text, "      up              x 2000"));
}

TEST_CASE("a tree of many unlike modules loses its deepest levels, and says so", "[inspect]") {
  test::GraphBuilder g;
  std::string x = g.input("x", {"batch", 4});
  for (int i = 0; i < 40; i++) {
    const std::string path = fmt::format("body.part{}.inner", i);
    x = g.node("MatMul", {x, g.weight(path + ".weight", {4, 4})}, {}, fmt::format("/body/part{}/inner/MatMul", i));
  }
  g.output(x);
  const std::string text = text_of(open(g));
  INFO(text);
  CHECK(has(text, "\n    part39 "));
  CHECK_FALSE(has(text, "      inner"));
  CHECK(has(text, "the first 2 of 3 levels; --depth 3 shows all, --path GLOB a part\n"));
  inspect::InspectOptions all;
  all.depth = 3;
  CHECK(has(text_of(open(g), all), "      inner"));
}

TEST_CASE("modules of another structure have a row of their own", "[inspect]") {
  test::GraphBuilder g = deep_model(4);
  g.output(g.node("Relu", {"x"}, {}, "/model/layers.2/Relu_more"));
  const std::string text = text_of(open(g));
  INFO(text);
  CHECK(has(text, "    layers.{0,1,3}    x 3"));
  CHECK(has(text, "    layers.2  "));
}

TEST_CASE("mixtures of experts are listed with what is stacked", "[inspect]") {
  const std::string plain = text_of(open("models/moe_tiny/moe_tiny.onnx"));
  INFO(plain);
  CHECK(has(plain, "\nexperts model.layers.{0..3}.mlp.experts: 4, 2 a token; gate_up_proj, down_proj\n"));
  const Opened opened = open("models/moe_capacity/moe_capacity.dynamo.onnx");
  const std::string limited = text_of(opened);
  INFO(limited);
  CHECK(has(limited, "\nexperts model.layers.{0..3}.mlp.experts: 3, 2 a token, each takes 9 of 16 tokens; "
                     "gate_up_proj, gate_up_bias, down_proj\n"));
  CHECK_FALSE(has(text_of(open("models/gpt_tiny/gpt_tiny.onnx")), "experts "));
}

TEST_CASE("the sums of a tree are those of its operations", "[inspect]") {
  const Opened gpt = open("models/gpt_tiny/gpt_tiny.onnx");
  inspect::InspectOptions options;
  options.depth = 0;
  const std::string text = text_of(gpt, options);
  INFO(text);
  // A tied parameter counts once; 53,440 is what models/README.md says.
  CHECK(has(text, "53440"));
  CHECK(has(text, "tied    transformer.wte.weight: read by transformer.wte, lm_head\n"));
  CHECK_FALSE(has(text, "  transformer  "));
  options.batch = 10;
  const std::string ten = text_of(gpt, options);
  INFO(ten);
  CHECK(has(ten, "FLOPs/10 samples"));
  CHECK(has(ten, "18.0 M"));  // 1.8 M for one
  options.batch = 0;
  options.depth = -1;
  options.path = "**.mlp";
  const std::string mlp = text_of(gpt, options);
  INFO(mlp);
  CHECK(has(mlp, "\ntransformer.h.{0..3}.mlp    x 4"));
  CHECK(has(mlp, "\n  c_fc                      x 4"));
  CHECK_FALSE(has(mlp, "attn"));
  options.path = "nothing";
  CHECK(has(text_of(gpt, options), "no module matches `nothing`"));
}

TEST_CASE("dims without a size are shown for one, and named", "[inspect]") {
  const std::string text = text_of(open("models/variants/gpt/script17_both.onnx"));
  INFO(text);
  CHECK(has(text,
            "dim     `sequence` of `tokens` has no size, shown for 16: write `dim \"sequence\" = 16` in the strategy"));
  frontend::ImportOptions bound;
  bound.dims["sequence"] = 8;
  const std::string shown = text_of(open("models/variants/gpt/script17_both.onnx", bound));
  CHECK_FALSE(has(shown, "has no size"));
  CHECK(has(shown, "i64[B, 8]"));
}

TEST_CASE("unsupported operators do not hide the tree", "[inspect]") {
  test::GraphBuilder g = deep_model(3);
  g.output(g.node("Bernoulli", {"x"}, {}, "/model/noise/Bernoulli"));
  g.output(g.node("Bernoulli", {"x"}, {}, "/model/noise/Bernoulli_1"));
  const Opened opened = open(g);
  INFO(opened.messages);
  CHECK_FALSE(opened.model);
  CHECK(has(opened.messages, "E0402"));
  REQUIRE(opened.notes.sketch);
  const std::string text = inspect::inspect_text(inspect::inspect_sketch("model.onnx", opened.notes), {});
  INFO(text);
  CHECK(has(text, "    layers.{0..2}    x 3"));
  CHECK(has(text, "not supported  nodes  first in\nBernoulli          2  model.noise\n"));
  const std::string json = inspect::inspect_json(inspect::inspect_sketch("model.onnx", opened.notes));
  CHECK(has(json, "\"op\": \"Bernoulli\""));
}

TEST_CASE("a narrow terminal drops columns, the path and the parameters last", "[inspect]") {
  inspect::InspectOptions options;
  options.style.width = 60;
  const std::string text = text_of(open("models/gpt_tiny/gpt_tiny.onnx"), options);
  INFO(text);
  const size_t at = text.find("module");
  REQUIRE(at != std::string::npos);
  const std::string header = text.substr(at, text.find('\n', at) - at);
  CHECK(header.size() <= 60);
  CHECK(has(header, "parameters"));
  CHECK_FALSE(has(header, "output"));
  options.style.color = true;
  CHECK(has(text_of(open("models/gpt_tiny/gpt_tiny.onnx"), options), "\033[1mmodule"));
}
