// recompute: the same bits as without, less memory, and FLOPs that count the forward again.
#include <algorithm>

#include "cli/compile_model.h"
#include "passes/pipeline.h"
#include "plan/show.h"
#include "tests/compiler/strategy_file.h"
#include "tests/frontend/onnx/graph_builder.h"

using namespace piper;
using namespace piper::testing;

namespace {

constexpr const char* kMse = "mse(prediction = output \"prediction\", target = input \"y\")";
constexpr const char* kText = "cross_entropy(logits = output \"logits\", target = input \"labels\", ignore_index = -100)";
constexpr const char* kImage = "cross_entropy(logits = output \"logits\", target = input \"label\")";
constexpr const char* kSgd = "sgd(lr = 0.05, momentum = 0.9)";

cli::Compiled compile(const std::string& model, const std::string& strategy, const std::map<std::string, std::string>& defines = {}) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  cli::CompileOptions options;
  options.defines = defines;
  auto compiled = cli::compile(model, strategy, options, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(compiled.has_value());
  return std::move(*compiled);
}

ir::TrainingDag dag_of(const std::string& model_file, const StrategyFile& strategy_file) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  ir::Model model;
  ir::Strategy strategy;
  REQUIRE(cli::load_strategy(model_file, strategy_file.path(), {}, diagnostics, model, strategy));
  auto dag = passes::run_passes(std::move(model), strategy, diagnostics, {}, "recompute");
  INFO(diagnostics.render());
  REQUIRE(dag.has_value());
  return std::move(*dag);
}

// Runs a strategy and the same one with `recompute`, which must not change a bit: not of the loss, of a gradient or of a
// weight after three steps.
void check_same_bits(const std::string& model, const std::string& text, const std::string& recompute,
                     const std::map<std::string, std::string>& defines = {}, const char* exporter = "") {
  const std::filesystem::path folder = text.find("use pipeline") == std::string::npos ? std::filesystem::temp_directory_path() : "strategies";
  const StrategyFile plain(text, folder), again(text + recompute + "\n", folder);
  p1::Cell a = cell_of(plain, model), b = cell_of(again, model);
  a.model.file = b.model.file = fmt::format("models/{0}/{0}{1}.onnx", model, exporter);
  a.defines = b.defines = defines;
  const p1::Result ours = p1::run(b, 3), theirs = p1::run(a, 3);
  INFO(model << "\n" << text << recompute);
  INFO(ours.error << theirs.error);
  REQUIRE(ours.error.empty());
  REQUIRE(theirs.error.empty());
  CHECK(ours.losses == theirs.losses);
  CHECK(ours.grad_norms == theirs.grad_norms);
  CHECK(ours.gradients == theirs.gradients);
  CHECK(ours.weights == theirs.weights);
  CHECK(ours.weights.size() > 5);
}

std::string shipped(const std::string& name, const std::string& optimizer = kSgd) {
  std::ifstream in("strategies/" + name + ".piper");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t begin = text.find("train {");
  REQUIRE(begin != std::string::npos);
  return text.substr(0, begin) + train(kText, optimizer, 23);
}

int64_t flops_of(const plan::Plan& plan, const std::string& pass) {
  int64_t sum = 0;
  for (const plan::Chunk& chunk : plan.chunks) {
    if (chunk.name.starts_with(pass)) sum += chunk.flops_per_sample;
  }
  return sum;
}

}  // namespace

TEST_CASE("recomputing everything on one device changes no bit") {
  const std::string cut = "split all() into 3 as mb\n";
  for (const char* model : {"gpt_tiny", "llama_tiny", "bert_tiny", "t5_tiny", "rnn_tiny"}) {
    check_same_bits(model, cut + train(kText, kSgd, 11), "recompute all()");
  }
  check_same_bits("mlp", cut + train(kMse, kSgd, 11), "recompute all()");
  check_same_bits("own_loss", train("mean(output \"loss\")", kSgd, 11), "recompute all()");
  for (const char* model : {"vit_tiny", "cnn_gn"}) check_same_bits(model, cut + train(kImage, kSgd, 11), "recompute all()");
}

TEST_CASE("a dropout that is computed again drops the same elements") {
  for (const char* exporter : {"", ".dynamo"}) {
    check_same_bits("gpt_dropout", "split all() into 3 as mb\n" + train(kText, kSgd, 11), "recompute all()", {}, exporter);
    check_same_bits("gpt_dropout", shipped("1f1b"), "recompute all()", {{"pp", "2"}, {"dp", "2"}}, exporter);
  }
}

TEST_CASE("a dropout drops the same elements of a sample, however the batch is cut and wherever it runs") {
  auto result = [](const std::string& text, const std::map<std::string, std::string>& defines) {
    const StrategyFile file(text, "strategies");
    p1::Cell cell = cell_of(file, "gpt_dropout");
    cell.defines = defines;
    const p1::Result r = p1::run(cell, 3);
    INFO(text << r.error);
    REQUIRE(r.error.empty());
    return r;
  };
  const p1::Result whole = result(train(kText, kSgd, 23), {}), cut = result("split all() into 4 as mb\n" + train(kText, kSgd, 23), {});
  // Sums in another order differ by rounding; another element dropped would be seen at once.
  CHECK(p1::relative_difference(cut.losses, whole.losses) < 1e-7);
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    INFO(schedule);
    const p1::Result pipeline = result(shipped(schedule), {{"pp", "4"}, {"microbatches", "4"}});
    CHECK(pipeline.losses[0] == cut.losses[0]);
    const p1::Difference d = p1::compare(pipeline, cut);
    CHECK(d.gradients < 1e-5);
    CHECK(d.weights < 1e-5);
    CHECK(p1::compare(result(shipped(schedule), {{"pp", "2"}, {"dp", "3"}, {"microbatches", "4"}}), whole).loss < 1e-7);
  }
  p1::Result seeded = result(train(kText, kSgd, 23, "seed 1"), {});
  CHECK(p1::relative_difference(seeded.losses, whole.losses) > 1e-4);
}

TEST_CASE("running statistics of a batch normalisation that is computed again advance once") {
  check_same_bits("cnn_bn", "split all() into 4 as mb\n" + train(kImage, kSgd, 16, "coupled_groups 8"), "recompute all()");
}

TEST_CASE("recomputing in pipelines, with split backwards and shards, changes no bit") {
  const std::map<std::string, std::string> four{{"pp", "2"}, {"dp", "2"}, {"microbatches", "4"}};
  for (const char* schedule : {"1f1b", "zb_h1", "zb_v"}) {
    for (const char* model : {"gpt_tiny", "llama_tiny"}) check_same_bits(model, shipped(schedule), "recompute all()", four);
  }
  check_same_bits("bert_tiny", shipped("zb_h1"), "recompute all()", four);
  check_same_bits("gpt_tiny", shipped("interleaved"), "recompute all(stage = 0)\nrecompute all(stage = 3)", four);
  std::map<std::string, std::string> sharded = four;
  sharded["zero"] = "3";
  sharded["bucket"] = "16KiB";
  check_same_bits("gpt_tiny", shipped("1f1b"), "recompute all()", sharded);
  // A stage in two places, and a backward that is split for some microbatches only.
  const std::string stages = "mesh dev[pp = 2]\ntag layer = i where path \"layers.{i}.**\"\ntag stage = balanced(layer, 2)\nsplit all() into 4 as mb\n";
  const std::string halves = "order [F(stage = 1, mb = 0), I(stage = 1, mb = 0), F(stage = 1, mb = 1), W(stage = 1, mb = 0), B(stage = 1, mb = 1)]\n";
  check_same_bits("mlp", stages + "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1, mb = 0..2) on dev[pp = 0]\n"
                                  "place all(stage = 1, mb = 2..4) on dev[pp = 1]\n" + halves + train(kMse, kSgd, 11), "recompute all()");
}

TEST_CASE("a tag cuts regions out that are recomputed by themselves") {
  const std::string end = train(kText, kSgd, 11);
  const std::string layers = "tag layer = i where path \"**.h.{i}.**\"\n";
  check_equal("gpt_tiny", layers + "recompute all(layer = 1..3)\n" + end, end);
  check_equal("gpt_tiny", "tag attn = 1 where path \"**.attn.**\"\nrecompute all(attn = 1)\n" + end, end);
  const StrategyFile attention("tag attn = 1 where path \"**.attn.**\"\nrecompute all(attn = 1)\n" + end);
  int regions = 0;
  for (const ir::Chunk& chunk : dag_of("models/gpt_tiny/gpt_tiny.onnx", attention).chunks) {
    CHECK((chunk.recomputed_segments > 0) == (chunk.tags.count("attn") > 0));
    CHECK(chunk.kept.empty());
    regions += chunk.recomputed_segments;
  }
  CHECK(regions == 4);
}

TEST_CASE("a chunk of several layers keeps one value for each and recomputes one at a time") {
  const StrategyFile file("recompute all()\n" + train(kText, kSgd, 8));
  for (const char* model : {"models/gpt_tiny/gpt_tiny.onnx", "models/llama_tiny/llama_tiny.dynamo.onnx"}) {
    const ir::TrainingDag dag = dag_of(model, file);
    REQUIRE(dag.chunks.size() == 1);
    // What leaves each of the four layers: what enters the first is as cheap to compute again as to keep.
    CHECK(dag.chunks[0].kept.size() == 4);
    for (ir::ValueId v : dag.chunks[0].kept) CHECK(to_string(dag.model.value(v).type) == "f32[B, 16, 32]");
    CHECK(dag.chunks[0].recomputed_segments == 5);
  }
}

TEST_CASE("a chunk without repeated modules is cut where it is cheap") {
  const test::TempFolder folder;
  test::GraphBuilder g(17);
  std::string h = g.input("x", {"batch", 16});
  for (int i = 0; i < 12; ++i) {
    const std::string name = fmt::format("part{}", i);
    h = g.node("Gemm", {h, g.weight(name + ".weight", {i % 2 == 0 ? 64 : 16, i % 2 == 0 ? 16 : 64})}, {{"transB", 1}}, "/" + name + "/Gemm");
    h = g.node("Tanh", {h}, {}, "/" + name + "/Tanh");
  }
  g.output(h);
  folder.write("parts.onnx", g.bytes());
  const StrategyFile file("recompute all()\n" + train(fmt::format("mse(prediction = output \"{}\", target = input \"y\")", h), kSgd, 8));
  const ir::TrainingDag dag = dag_of(folder.file("parts.onnx"), file);
  REQUIRE(dag.chunks.size() == 1);
  CHECK(dag.chunks[0].recomputed_segments >= 3);
  for (ir::ValueId v : dag.chunks[0].kept) CHECK(to_string(dag.model.value(v).type) == "f32[B, 16]");
}

TEST_CASE("planned peak memory falls, and the backward counts the forward again") {
  const StrategyFile plain(train(kText, kSgd, 16)), again("recompute all()\n" + train(kText, kSgd, 16));
  const cli::Compiled a = compile("models/gpt/gpt.onnx", plain.path()), b = compile("models/gpt/gpt.onnx", again.path());
  auto working = [](const plan::Plan& plan) {
    const plan::MemoryPeak peak = plan::memory_peak(plan.programs[0]);
    return peak.by_kind[static_cast<size_t>(plan::BufferKind::kActivation)] + peak.by_kind[static_cast<size_t>(plan::BufferKind::kScratch)];
  };
  // Of what four layers save, a quarter is there at a time, and four values of 16 x 64 x 160 floats.
  const int64_t kept = 4 * 16 * 64 * 160 * 4;
  CHECK(working(b.plan) < working(a.plan) / 2);
  CHECK(working(b.plan) > kept);
  CHECK(b.plan.programs[0].arena_bytes < a.plan.programs[0].arena_bytes);
  CHECK(flops_of(a.plan, "F") == flops_of(b.plan, "F"));
  const double more = static_cast<double>(flops_of(b.plan, "B") - flops_of(a.plan, "B")) / static_cast<double>(flops_of(a.plan, "F"));
  CHECK(more > 0.6);  // the last matrix product of each branch is not needed again
  CHECK(more < 1);
  REQUIRE(b.notes.size() == 1);
  CHECK(b.notes[0].starts_with("recomputing `model` in 5 segments, kept: `/transformer/"));
  CHECK(a.notes.empty());
}

TEST_CASE("every rank of a pipeline plans less with recompute") {
  const std::map<std::string, std::string> defines{{"pp", "2"}, {"microbatches", "4"}};
  const cli::Compiled a = compile("models/gpt/gpt.onnx", "strategies/1f1b.piper", defines),
                      b = compile("models/gpt/gpt.onnx", "strategies/1f1b_recompute.piper", defines);
  for (size_t p = 0; p < 2; ++p) CHECK(b.plan.programs[p].arena_bytes < a.plan.programs[p].arena_bytes);
}
