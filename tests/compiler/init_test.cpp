// `piper init`: what it writes for every shipped model compiles, trains, and means the same on one device and on four.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "inspect/first_strategy.h"
#include "inspect/open_model.h"
#include "tests/frontend/onnx/graph_builder.h"
#include "tests/p1/run_cell.h"
#include "tests/temp_folder.h"

namespace fs = std::filesystem;
using namespace piper;

namespace {

// Both exports of every model in models/, and some variants: open dims, no weights, batch normalisation.
std::vector<std::string> model_files() {
  std::vector<std::string> files;
  for (const auto& folder : fs::directory_iterator("models")) {
    if (!folder.is_directory() || folder.path().filename() == "variants") continue;
    for (const auto& file : fs::directory_iterator(folder.path())) {
      if (file.path().extension() == ".onnx") files.push_back(file.path().string());
    }
  }
  for (const char* variant : {"gpt/script17_both", "gpt/dynamo18_both", "sdpa/dynamo18_weightless", "fresh/dynamo18",
                              "llama/script17_folded"}) {
    files.push_back(fmt::format("models/variants/{}.onnx", variant));  // sdpa: no weights
  }
  std::sort(files.begin(), files.end());
  return files;
}

support::Expected<std::string> init(const std::string& file, inspect::FirstStrategyOptions options) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  frontend::ImportNotes notes;
  const auto model = inspect::open_model(file, {}, notes, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(model);
  options.model_file = file;
  options.strategy_file = "first.piper";
  for (const auto& [name, inputs] : notes.assumed) options.dims[name] = notes.assumed_size;
  return inspect::first_strategy(*model, options);
}

p1::Result run(const std::string& file, const std::string& strategy,
               const std::map<std::string, std::string>& defines) {
  p1::Cell cell;
  cell.model = {file, file, "synthetic", {}, 0};
  cell.strategy = strategy;
  cell.defines = defines;
  // Larger than rounding noise, as in the tests of equal numbers.
  cell.sets["train.optimizer"] = "adamw(lr = 1e-3, betas = [0.9, 0.95], eps = 1e-3, weight_decay = 0.1)";
  return p1::run(cell, 3);
}

void check_equal(const p1::Result& result, const p1::Result& reference) {
  INFO(result.error);
  REQUIRE(result.error.empty());
  REQUIRE(result.losses.size() == 3);
  for (double loss : result.losses) CHECK(std::isfinite(loss));
  const p1::Difference d = p1::compare(result, reference);
  INFO(d.worst);
  CHECK(d.loss < 1e-5);
  CHECK(d.norm < 1e-5);
  CHECK(d.weights < 1e-5);
}

}  // namespace

TEST_CASE("what init writes for every shipped model trains, with equal numbers on one device and on more", "[init]") {
  const test::TempFolder folder;
  for (const std::string& file : model_files()) {
    const auto one = init(file, {});
    INFO(file << "\n" << (one ? *one : one.error().message));
    REQUIRE(one);
    const std::string path = folder.write("one.piper", *one);
    const p1::Result reference = run(file, path, {});
    check_equal(reference, reference);
    for (const auto& [pp, dp] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
      inspect::FirstStrategyOptions options;
      options.pp = pp;
      options.dp = dp;
      const auto text = init(file, options);
      INFO(fmt::format("--pp {} --dp {}: {}", pp, dp, text ? "" : text.error().message));
      REQUIRE(text);
      check_equal(run(file, folder.write("more.piper", *text), {}), reference);
    }
    // The file for one device is that for four, with other values.
    check_equal(run(file, path, {{"pp", "2"}, {"dp", "2"}}), reference);
  }
}

namespace {

// A product in each module, by the names that exporters give nodes: "encoder/layers.0".
std::string chain(test::GraphBuilder& g, const std::vector<std::string>& modules) {
  std::string x = g.input("x", {"batch", 4});
  int made = 0;
  for (const std::string& module : modules) {
    std::string path = module;
    std::replace(path.begin(), path.end(), '/', '.');
    const std::string weight = path.empty() ? fmt::format("w{}", made) : path + ".weight";
    x = g.node("MatMul", {x, g.weight(weight, {4, 4})}, {}, path.empty() ? "" : fmt::format("/{}/MatMul", module));
    x = g.node("Tanh", {x}, {}, path.empty() ? "" : fmt::format("/{}/Tanh", module));
    made++;
  }
  return x;
}

void check_stages(const test::TempFolder& folder, test::GraphBuilder& g, const std::string& rule) {
  const std::string file = folder.write("model.onnx", g.bytes());
  inspect::FirstStrategyOptions two;
  two.pp = two.dp = 2;
  const auto one = init(file, {}), more = init(file, two);
  INFO(one.value_or("") << (more ? *more : more.error().message));
  REQUIRE((one && more));
  CHECK(more->find(rule) != std::string::npos);
  const p1::Result reference = run(file, folder.write("one.piper", *one), {});
  check_equal(reference, reference);
  check_equal(run(file, folder.write("more.piper", *more), {}), reference);
}

}  // namespace

TEST_CASE("lists that follow each other, a list at the root, and modules without a list make stages", "[init]") {
  const test::TempFolder folder;
  test::GraphBuilder lists, root, plain;
  lists.output(chain(lists, {"stem", "encoder/layers.0", "encoder/layers.1", "encoder/layers.2", "bridge",
                             "decoder/layers.0", "decoder/layers.1", "head"}));
  check_stages(folder, lists, "tag layer = 3 + i where path \"decoder.layers.{i}.**\"");
  root.output(chain(root, {"0", "1", "2"}));
  check_stages(folder, root, "tag layer = i where path \"{i}.**\"");
  plain.output(chain(plain, {"net/stem", "net/body", "net/head"}));
  check_stages(folder, plain, "tag layer = 1 where path \"net.body.**\"");
}

TEST_CASE("a file without paths is trained with replicas alone, and says why", "[init]") {
  const test::TempFolder folder;
  test::GraphBuilder g;
  g.output(chain(g, {"", ""}));
  const std::string file = folder.write("model.onnx", g.bytes());
  inspect::FirstStrategyOptions options;
  options.dp = 2;
  const auto text = init(file, options);
  REQUIRE(text);
  INFO(*text);
  CHECK(text->find("# No pipeline: the file has no module paths") != std::string::npos);
  check_equal(run(file, folder.write("two.piper", *text), {}),
              run(file, folder.write("one.piper", *init(file, {})), {}));
  options.pp = 2;
  const auto cut = init(file, options);
  REQUIRE_FALSE(cut);
  CHECK(cut.error().message == "the model cannot be cut into 2 stages: the file has no module paths");
}

TEST_CASE("a loss that is no mean over samples leaves the batch whole", "[init]") {
  const test::TempFolder folder;
  test::GraphBuilder g;
  const std::string mean = g.node("ReduceMean", {chain(g, {"layers.0", "layers.1"})}, {{"keepdims", 0}});
  g.output(g.node("Mul", {mean, mean}));
  const std::string file = folder.write("model.onnx", g.bytes());
  inspect::FirstStrategyOptions options;
  options.pp = 2;
  const auto text = init(file, options);
  REQUIRE(text);
  INFO(*text);
  CHECK(text->find("replicate") == std::string::npos);
  check_equal(run(file, folder.write("two.piper", *text), {}),
              run(file, folder.write("one.piper", *init(file, {})), {}));
  options.dp = 2;
  const auto replicas = init(file, options);
  REQUIRE_FALSE(replicas);
  CHECK(replicas.error().message == "operations of the model mix samples, so the batch cannot be cut over replicas");
}

TEST_CASE("the loss falls on a model's own data", "[init]") {
  const test::TempFolder folder;
  for (const char* name : {"gpt_tiny", "bert_tiny", "vit_tiny", "cnn_bn", "own_loss"}) {
    INFO(name);
    p1::Cell cell;
    cell.model.file = fmt::format("models/{0}/{0}.onnx", name);
    cell.model.data = fmt::format("models/{}/data.safetensors", name);
    const auto text = init(cell.model.file, {});
    REQUIRE(text);
    cell.strategy = folder.write("one.piper", *text);
    cell.sets["train.schedule"] = "constant(warmup = 0)";
    const p1::Result result = p1::run(cell, 20);
    INFO(result.error);
    REQUIRE(result.losses.size() == 20);
    CHECK(result.losses.back() < result.losses.front());
  }
}

TEST_CASE("the schedules of init", "[init]") {
  const test::TempFolder folder;
  const std::string file = "models/llama_tiny/llama_tiny.onnx";
  const p1::Result reference = run(file, folder.write("one.piper", *init(file, {})), {});
  for (const char* schedule : {"gpipe", "interleaved"}) {
    inspect::FirstStrategyOptions options;
    options.pp = 2;
    options.schedule = schedule;
    const auto text = init(file, options);
    REQUIRE(text);
    INFO(*text);
    check_equal(run(file, folder.write("more.piper", *text), {}), reference);
  }
}

TEST_CASE("what cannot be is said before a file is written", "[init]") {
  inspect::FirstStrategyOptions options;
  auto expect = [&](const std::string& file, const std::string& message) {
    const auto text = init(file, options);
    REQUIRE_FALSE(text);
    CHECK(text.error().message == message);
    CHECK_FALSE(text.error().help.empty());
  };
  options.pp = 5;
  expect("models/gpt_tiny/gpt_tiny.onnx", "5 stages for a model of 4 layers (`transformer.h.{i}.**`)");
  options.pp = 3;
  options.schedule = "interleaved";
  expect("models/gpt_tiny/gpt_tiny.onnx", "6 stages for a model of 4 layers (`transformer.h.{i}.**`)");
  options = {};
  options.pp = options.dp = 2;
  options.batch = 7;
  expect("models/gpt_tiny/gpt_tiny.onnx", "a batch of 7 cannot be cut into 4 microbatches for 2 replicas");
  options = {};
  expect("models/variants/gpt/dynamo18_weightless.onnx",
         "the file has no value of the buffer `transformer.h.0.attn.bias`, and nothing can make one up");
  options.batch = 9;
  expect("models/cnn_bn/cnn_bn.onnx",
         "a batch of 9 is not 8 equal groups, over which batch normalisation takes its statistics");
}
