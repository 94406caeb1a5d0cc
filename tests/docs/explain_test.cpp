// The example of every explain page gives the code of its page. Pages show what matters; what is needed around it to make
// a strategy of it is here.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "cli/compile_model.h"
#include "support/explain.h"
#include "tests/docs/blocks.h"
#include "tests/temp_folder.h"

using namespace piper;

namespace {

const std::string kMlp = "models/mlp/mlp.onnx", kGpt = "models/gpt_tiny/gpt_tiny.onnx";
const std::string kMesh = "mesh dev[pp = 2]\n", kReplicas = "mesh dev[dp = 2]\n";
const std::string kLayers = "tag layer = i where path \"layers.{i}.**\"\n";
const std::string kStages = kLayers + "tag stage = if layer < 4 then 0 else 1\n";
const std::string kPlaces = "for s in 0..2 { place all(stage = s) on dev[pp = s] }\nsplit all() into 2 as mb\n";
const std::string kTrain =
    "train { loss mse(prediction = output \"prediction\", target = input \"y\") optimizer sgd(lr = 0.1) batch 8 }\n";
const std::string kGptTrain =
    "train { loss cross_entropy(logits = output \"logits\", target = input \"labels\") optimizer sgd(lr = 0.1) batch 8 }\n";

const std::string kMoe = "models/moe_tiny/moe_tiny.onnx";
const std::string kMoeStages = "tag layer = i where path \"model.layers.{i}.**\"\ntag stage = balanced(layer, 2)\n";
const std::string kMoeTrain = "train { loss mean(output \"loss\") optimizer sgd(lr = 0.1) batch 8 }\n";

constexpr support::Code kCodes[] = {
#define PIPER_DIAGNOSTIC(code, severity, title) support::Code::code,
#include "support/diagnostics.def"
#undef PIPER_DIAGNOSTIC
};

// What stands before and after the example, and the model. `fix`: whether the page's second example, which is right, can
// take the place of the first.
struct Around {
  std::string before, after, model = kMlp;
  bool fix = true;
};

const std::map<std::string, Around> kAround = {
    {"E0302", {"tag layer = i where path \"**.h.{i}.**\"\n", kGptTrain, kGpt}},
    {"E0303", {"", kTrain}},
    {"E0304", {kReplicas + kStages + "split all() into 2 as mb\n", kTrain}},
    {"E0501", {.fix = false}},  // the page shows the line to change
    {"E0502", {"mesh dev[pp = 3]\n" + kStages + "split all() into 4 as mb\n", kTrain, kMlp, false}},
    {"E0503", {kStages, kTrain, kMlp, false}},
    {"E0504", {kMesh + kLayers, kTrain}},
    {"E0505", {kMesh + kStages + kPlaces, kTrain}},
    {"E0508", {"", "", kGpt}},
    {"E0509", {}},
    {"E0510", {"mesh dev[tp = 2]\n", kGptTrain, kGpt}},
    {"E0511", {"", kTrain}},
    {"E0515", {kStages, kTrain}},
    {"E0516", {kMesh + kStages + kPlaces, kTrain}},
    {"E0517", {kStages, kTrain}},
    {"E0518", {kReplicas, kTrain}},
    {"E0519", {"mesh dev[ep = 2]\n" + kStages + "replicate all() over ep\n", kTrain}},
    {"E0520", {kMoeStages, kMoeTrain, kMoe}},
    {"E0521", {"", kGptTrain, kGpt}},
    {"W0201", {"", kTrain}},
    {"W0202", {"", kTrain}},
    {"W0502", {"mesh dev[pp = 1]\n" + kLayers + "tag stage = if layer < 2 then 0 else 3\nsplit all() into 2 as mb\n", kTrain}},
};

// Pages whose example is not a strategy, with the test that makes the error.
const std::map<std::string, std::string> kElsewhere = {
    {"E0002", "bytes that are no text: tests/frontend/piper/hostile_test.cpp"},
    {"E0003", "10 MiB of text: tests/frontend/piper/hostile_test.cpp"},
    {"E0103", "thousands of terms: tests/frontend/piper/hostile_test.cpp"},
    {"E0209", "an option: tests/runtime/cli_test.cpp"},
    {"E0401", "a model file: tests/frontend/onnx/bad_input_test.cpp"},
    {"E0402", "a model file: tests/frontend/onnx/bad_input_test.cpp"},
    {"E0403", "a model file: tests/frontend/onnx/dims_test.cpp"},
    {"E0404", "a model file: tests/frontend/onnx/bad_input_test.cpp"},
    {"E0405", "a model file: tests/frontend/onnx/bad_input_test.cpp"},
    {"E0406", "a model file: tests/frontend/onnx/dims_test.cpp"},
    {"E0407", "a model file: tests/frontend/onnx/parameters_test.cpp"},
    {"E0408", "a model file: tests/frontend/onnx/bad_input_test.cpp"},
    {"E0507", "a model file: tests/compiler"},
    {"E0513", "a build without a kernel"},
    {"E0602", "a wrong plan: tests/verify"},
    {"E0603", "a wrong plan: tests/verify"},
    {"E0604", "a wrong plan: tests/verify"},
    {"E0605", "a wrong plan: tests/verify"},
    {"E0606", "a wrong plan: tests/verify"},
    {"E0607", "a wrong plan: tests/verify"},
    {"W0401", "a model file: tests/frontend/onnx/import_test.cpp"},
    {"W0402", "a model file: tests/frontend/onnx/import_test.cpp"},
    {"W0403", "a model file: tests/frontend/onnx/import_test.cpp"},
    {"W0501", "the example is the answer: tests/compiler/batch_norm_test.cpp"},
};

// The codes that a strategy of this text gives.
std::vector<std::string> codes_of(const std::string& text, const std::string& model) {
  const test::TempFolder folder;
  const std::string path = folder.write("example.piper", text);
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  cli::compile(model, path, {}, diagnostics);
  std::vector<std::string> codes;
  for (const support::Diagnostic& d : diagnostics.all()) codes.emplace_back(support::code_name(d.code));
  return codes;
}

std::string text_of(const docs::Block& block) {
  std::string text;
  for (const std::string& line : block.text) text += line + "\n";
  return text;
}

std::vector<docs::Block> strategies_of(support::Code code) {
  std::vector<docs::Block> blocks = docs::blocks_of(std::string(support::code_name(code)), std::string(support::explain_page(code)));
  std::erase_if(blocks, [](const docs::Block& block) { return block.language != "piper"; });
  return blocks;
}

}  // namespace

TEST_CASE("the example of every explain page gives its code", "[docs]") {
  for (const support::Code each : kCodes) {
    const std::string code(support::code_name(each));
    INFO(code);
    if (kElsewhere.count(code)) continue;
    const auto found = kAround.find(code);
    const Around around = found == kAround.end() ? Around() : found->second;
    const std::vector<docs::Block> blocks = strategies_of(each);
    REQUIRE(!blocks.empty());
    const auto codes = codes_of(around.before + text_of(blocks[0]) + around.after, around.model);
    INFO("it gives " << fmt::format("{}", fmt::join(codes, ", ")));
    CHECK(std::count(codes.begin(), codes.end(), code) > 0);
    if (blocks.size() < 2 || !around.fix) continue;
    const auto fixed = codes_of(around.before + text_of(blocks[1]) + around.after, around.model);
    INFO("its second example gives " << fmt::format("{}", fmt::join(fixed, ", ")));
    CHECK(fixed.empty());
  }
}
