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
#include "tests/p1/run_cell.h"

namespace fs = std::filesystem;
using namespace piper;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "piper_init_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  fs::path path_;
};

// Both exports of every model in models/, and some variants: open dims, no weights, batch normalisation.
std::vector<std::string> model_files() {
  std::vector<std::string> files;
  for (const auto& folder : fs::directory_iterator("models")) {
    if (!folder.is_directory() || folder.path().filename() == "variants") continue;
    for (const auto& file : fs::directory_iterator(folder.path())) {
      if (file.path().extension() == ".onnx") files.push_back(file.path().string());
    }
  }
  for (const char* variant : {"gpt/script17_both", "gpt/dynamo18_both", "sdpa/dynamo18_weightless", "fresh/dynamo18", "llama/script17_folded"}) {
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

p1::Result run(const std::string& file, const std::string& strategy, const std::map<std::string, std::string>& defines) {
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
  const Folder folder;
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

TEST_CASE("the schedules of init", "[init]") {
  const Folder folder;
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
  expect("models/variants/gpt/dynamo18_weightless.onnx", "the file has no value of the buffer `transformer.h.0.attn.bias`, and nothing can make one up");
  options.batch = 9;
  expect("models/cnn_bn/cnn_bn.onnx", "a batch of 9 is not 8 equal groups, over which batch normalisation takes its statistics");
}
