// tie: two initializers that a strategy makes one parameter. tests/p1/variants_test.cpp compares with PyTorch's tied model.
#include "cli/compile_model.h"
#include "tests/compiler/strategy_file.h"

using namespace piper;
using namespace piper::testing;

namespace {

constexpr const char* kEmbedding = "transformer.wte.weight";
constexpr const char* kHead = "lm_head.weight";

p1::Result run_variant(const std::string& file, const std::string& text) {
  const bool library = text.find("use pipeline") != std::string::npos;
  const StrategyFile strategy(text, library ? "strategies" : std::filesystem::temp_directory_path());
  p1::Cell cell = cell_of(strategy, "gpt");
  cell.model.file = "models/variants/gpt/" + file + ".onnx";
  cell.model.data = "models/variants/gpt/data.safetensors";
  const p1::Result result = p1::run(cell, 3);
  INFO(file << "\n" << text << result.error);
  REQUIRE(result.error.empty());
  return result;
}

const std::string kTrain = train("cross_entropy(logits = output \"logits\", target = input \"labels\")", "sgd(lr = 0.05, momentum = 0.9)", 7);

const std::string kPipeline =
    "mesh dev[pp = 2, dp = 2]\nreplicate all() over dp\ntag layer = i where path \"**.h.{i}.**\"\ntag stage = balanced(layer, 2)\n"
    "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1) on dev[pp = 1]\nsplit all() into 3 as mb\n";

void check_close(const p1::Result& a, const p1::Result& b) {
  const p1::Difference d = p1::compare(a, b);
  INFO("largest difference in " << d.worst);
  CHECK(d.loss < 1e-5);
  CHECK(d.norm < 1e-5);
  CHECK(d.gradients < 1e-5);
  CHECK(d.weights < 1e-5);
}

}  // namespace

TEST_CASE("a tied head trains as the head that the file shares with the embedding") {
  const p1::Result shared = run_variant("script17", kTrain);
  REQUIRE(shared.weights.count(kEmbedding) == 1);
  REQUIRE(shared.weights.count(kHead) == 0);
  struct Case {
    const char* file;
    const char* tie;
  };
  for (const Case& c : {Case{"script17_untied", "tie \"transformer.wte.weight\" \"lm_head.weight\"\n"},
                        Case{"dynamo18_untied", "tie \"transformer.wte.weight\" \"lm_head.weight\"\n"},
                        // The file holds the head as x @ W, and its name is known for the transpose.
                        Case{"script17_folded_untied", "tie \"transformer.wte.weight\" \"lm_head.weight\"\n"},
                        Case{"script17_turned", "tie \"transformer.wte.weight\" \"lm_head.weight\" transposed\n"}}) {
    INFO(c.file);
    const p1::Result one = run_variant(c.file, c.tie + kTrain);
    CHECK(one.losses == shared.losses);
    check_close(one, shared);
    // Embedding and head on different stages.
    check_close(run_variant(c.file, c.tie + kPipeline + kTrain), shared);
  }
  // Untied, it is another model.
  CHECK(p1::relative_difference(run_variant("script17_untied", kTrain).losses, shared.losses) > 1e-3);
}

TEST_CASE("the first of two tied parameters gives name and values, whichever reads it transposed") {
  // The embedding is looked up in the head's transpose.
  const std::string tie = "tie \"lm_head.weight\" \"transformer.wte.weight\" transposed\n";
  const p1::Result one = run_variant("script17_turned", tie + kTrain);
  CHECK(one.weights.count(kEmbedding) == 0);
  const p1::Result plain = run_variant("script17_untied", "tie \"lm_head.weight\" \"transformer.wte.weight\"\n" + kTrain);
  CHECK(plain.weights.count(kEmbedding) == 0);
  CHECK(one.weights.at(kHead).size() == plain.weights.at(kHead).size());
  check_close(run_variant("script17_turned", tie + kPipeline + kTrain), one);
  check_close(run_variant("script17_untied", "tie \"lm_head.weight\" \"transformer.wte.weight\"\n" + kPipeline + kTrain), plain);
}

TEST_CASE("ties are transitive, in any order, and join what is frozen") {
  const std::string a = "transformer.h.0.ln_1.bias", b = "transformer.h.0.ln_2.bias", c = "transformer.h.1.ln_1.bias";
  auto tie = [](const std::string& x, const std::string& y) { return fmt::format("tie \"{}\" \"{}\"\n", x, y); };
  const p1::Result star = run_variant("script17", tie(a, b) + tie(a, c) + kTrain);
  CHECK(star.weights.count(b) + star.weights.count(c) == 0);
  CHECK(run_variant("script17", tie(a, b) + tie(b, c) + kTrain).weights == star.weights);
  const p1::Result late = run_variant("script17", tie(b, c) + tie(a, b) + kTrain);
  CHECK(late.weights == star.weights);
  const std::string freeze = fmt::format("freeze param \"{}\"\nfreeze param \"{}\"\n", a, b);
  const p1::Result frozen = run_variant("script17", freeze + tie(a, b) + kTrain);
  CHECK(frozen.gradients.count(a) == 0);
  CHECK(frozen.weights.at(a) == run_variant("script17", train("cross_entropy(logits = output \"logits\", target = input \"labels\")", "sgd(lr = 0.0)", 7)).weights.at(a));
}
