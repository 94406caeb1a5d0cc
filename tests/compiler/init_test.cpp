// What `piper init` writes compiles, trains, and gives the same numbers on one device and on four.
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/suggest.h"
#include "frontend/onnx/import.h"
#include "frontend/piper/format.h"
#include "tests/p1/run_cell.h"

using namespace piper;

namespace {

ir::Model import(const std::string& path, const std::map<std::string, int64_t>& dims = {}) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  frontend::ImportOptions options;
  options.dims = dims;
  auto model = frontend::import_onnx(path, options, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(model);
  return std::move(*model);
}

std::string text_of(const ir::Model& model, const cli::SuggestOptions& options) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  const auto text = frontend::format_file(sources.add("a.piper", cli::suggest(model, options).text), diagnostics);
  INFO(diagnostics.render());
  REQUIRE(text);
  return *text;
}

p1::Result train(const std::string& model, const std::string& data, const std::string& text, const char* extra = "") {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("piper_init_{}.piper", getpid());
  std::ofstream(path) << text << extra;
  p1::Cell cell;
  cell.model = {model, model, data, {}, 4};
  cell.strategy = path.string();
  // Small gradients of AdamW's usual eps decide whole steps by their rounding.
  cell.sets["train.optimizer"] = "sgd(lr = 0.05, momentum = 0.9)";
  p1::Result result = p1::run(cell, 3);
  std::filesystem::remove(path);
  return result;
}

}  // namespace

TEST_CASE("the first strategy of every model trains alike on one device and on four") {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator("models")) {
    const std::string name = entry.path().filename().string();
    for (const char* ending : {".onnx", ".dynamo.onnx"}) {
      const std::string file = fmt::format("models/{0}/{0}{1}", name, ending);
      if (!std::filesystem::exists(file)) continue;
      INFO(file);
      models++;
      const ir::Model model = import(file);
      std::string data = fmt::format("models/{}/data.safetensors", name);
      std::string one = text_of(model, {}), four = text_of(model, {.pp = 2, .dp = 2});
      if (name == "mlp") {  // its data calls the target otherwise
        for (std::string* text : {&one, &four}) text->replace(text->find("\"target\""), 8, "\"y\"");
      }
      const p1::Result alone = train(file, data, one), together = train(file, data, four);
      INFO(alone.error << together.error);
      REQUIRE(alone.error.empty());
      REQUIRE(together.error.empty());
      CHECK(alone.losses.size() == 3);
      if (four.find("coupled_groups") != std::string::npos) continue;  // other statistics, as the file says
      const p1::Difference d = p1::compare(together, alone);
      INFO(d.worst);
      CHECK(d.loss < 1e-5);
      CHECK(d.weights < 1e-5);
    }
  }
  CHECK(models >= 22);
}

TEST_CASE("schedules, open dims and files without weights") {
  const ir::Model gpt = import("models/gpt_tiny/gpt_tiny.onnx");
  for (const char* schedule : {"1f1b", "gpipe", "interleaved"}) {
    INFO(schedule);
    const p1::Result result = train("models/gpt_tiny/gpt_tiny.onnx", "models/gpt_tiny/data.safetensors", text_of(gpt, {.pp = 2, .schedule = schedule}));
    INFO(result.error);
    CHECK(result.error.empty());
  }
  const std::map<std::string, int64_t> dims{{"sequence", 12}};
  const std::string open = text_of(import("models/variants/gpt/script17_both.onnx", dims), {.pp = 2, .dims = dims});
  CHECK(open.find("dim \"sequence\" = 12") != std::string::npos);
  const p1::Result shorter = train("models/variants/gpt/script17_both.onnx", "models/variants/gpt/short_data.safetensors", open);
  INFO(shorter.error);
  CHECK(shorter.error.empty());
  const std::string weightless = text_of(import("models/variants/sdpa/dynamo18_weightless.onnx"), {});
  CHECK(weightless.find("param \"**.ln_1.weight\" constant(1.0)") != std::string::npos);
  const p1::Result fresh = train("models/variants/sdpa/dynamo18_weightless.onnx", "models/variants/sdpa/data.safetensors", weightless);
  INFO(fresh.error);
  CHECK(fresh.error.empty());
}

TEST_CASE("the outermost numbered modules are the blocks") {
  ir::Model model = import("models/gpt_tiny/gpt_tiny.onnx");
  CHECK(cli::suggest(model, {}).layers == 4);
  for (ir::Op& op : model.ops) op.path = "encoder.block." + std::to_string(op.path.size() % 3) + ".layer.1.dense";
  const cli::Suggestion nested = cli::suggest(model, {});
  CHECK(nested.layers == 3);
  CHECK(nested.text.find("path \"encoder.block.{i}.**\"") != std::string::npos);
  for (ir::Op& op : model.ops) op.path = "dense";
  const cli::Suggestion flat = cli::suggest(model, {});
  CHECK(flat.layers == 0);
  CHECK(flat.text.find("place all") == std::string::npos);
}
