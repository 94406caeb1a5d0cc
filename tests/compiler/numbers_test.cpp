// Equal numbers for what the strategy matrix does not hold: strategies written for one purpose, against one device.
#include "cli/compile_model.h"
#include "tests/compiler/strategy_file.h"

using namespace piper::p1;
using namespace piper::testing;

namespace {

constexpr const char* kMse = "mse(prediction = output \"prediction\", target = input \"y\")";
constexpr const char* kTags = "tag layer = i where path \"layers.{i}.**\"\ntag stage = balanced(layer, 2)\n";

}  // namespace

TEST_CASE("a stage in two places, by microbatch, sums the gradients of both") {
  const std::string end = train(kMse, "sgd(lr = 0.05, momentum = 0.9)", 11);
  for (const char* places : {"place all(stage = 0, mb = 0..2) on dev[pp = 0]\nplace all(stage = 1, mb = 0..2) on dev[pp = 1]\n"
                             "place all(stage = 0, mb = 2..4) on dev[pp = 1]\nplace all(stage = 1, mb = 2..4) on dev[pp = 0]\n",
                             "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1, mb = 0..2) on dev[pp = 0]\n"
                             "place all(stage = 1, mb = 2..4) on dev[pp = 1]\n"}) {
    check_equal("mlp", std::string("mesh dev[pp = 2]\n") + kTags + "split all() into 4 as mb\n" + places + end, end);
    check_equal("mlp", std::string("mesh dev[pp = 2, dp = 2]\nreplicate all() over dp\n") + kTags + "split all() into 4 as mb\n" + places + end, end);
  }
}

TEST_CASE("the mean of an output is taken over the whole batch, alone and in a weighted sum") {
  for (const char* loss : {"mean(output \"prediction\")",
                           "mse(prediction = output \"prediction\", target = input \"y\") + 0.5 * mean(output \"prediction\")"}) {
    const std::string end = train(loss, "sgd(lr = 0.05, momentum = 0.9)", 11);
    check_equal("mlp", std::string("mesh dev[pp = 2, dp = 2]\nreplicate all() over dp\n") + kTags +
                           "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1) on dev[pp = 1]\nsplit all() into 2 as mb\n" + end, end);
  }
}

TEST_CASE("a backward may be split for some microbatches and whole for others, in one placement or two") {
  const std::string end = train(kMse, "sgd(lr = 0.05, momentum = 0.9)", 11);
  const std::string split = "split all() into 4 as mb\n";
  const std::string halves = "order [F(stage = 1, mb = 0), I(stage = 1, mb = 0), F(stage = 1, mb = 1), W(stage = 1, mb = 0), B(stage = 1, mb = 1)]\n";
  const std::string pipeline = "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1) on dev[pp = 1]\n";
  check_equal("mlp", std::string("mesh dev[pp = 2]\n") + kTags + split + pipeline + halves + end, end);
  check_equal("mlp", std::string("mesh dev[pp = 2, dp = 2]\nreplicate all() over dp bucket 1KiB\n") + kTags + split + pipeline + halves +
                         "order [I(stage = 0, mb = 2), I(stage = 0, mb = 3), W(stage = 0, mb = 3), W(stage = 0, mb = 2)]\n" + end, end);
  // The halves of a stage that lives in two places, and of everything on one device, weights last.
  check_equal("mlp", std::string("mesh dev[pp = 2]\n") + kTags + split + "place all(stage = 0, mb = 0..2) on dev[pp = 0]\n"
                         "place all(stage = 1, mb = 0..2) on dev[pp = 1]\nplace all(stage = 0, mb = 2..4) on dev[pp = 1]\n"
                         "place all(stage = 1, mb = 2..4) on dev[pp = 0]\n"
                         "order [I(stage = 1, mb = 0), I(stage = 1, mb = 1), W(stage = 1, mb = 0), W(stage = 1, mb = 1)]\n" + end, end);
  check_equal("mlp", "split all() into 2 as mb\norder [I(mb = 0), I(mb = 1), W(mb = 0), W(mb = 1)]\n" + end, end);
}

TEST_CASE("an overlap group without communication inside is left, then right, with a warning") {
  const std::string end = train(kMse, "sgd(lr = 0.05, momentum = 0.9)", 11);
  const std::string text = std::string("mesh dev[pp = 2]\n") + kTags + "split all() into 4 as mb\nplace all(stage = 0) on dev[pp = 0]\nplace all(stage = 1) on dev[pp = 1]\n"
                           "order [F(stage = 1, mb = 0), F(stage = 1, mb = 2) | B(stage = 1, mb = 0), F(stage = 1, mb = 1)]\n" + end;
  check_equal("mlp", text, end);
  const StrategyFile file(text);
  piper::support::SourceMap sources;
  piper::support::Diagnostics diagnostics(sources);
  const auto compiled = piper::cli::compile("models/mlp/mlp.onnx", file.path(), {}, diagnostics);
  REQUIRE(compiled.has_value());
  CHECK_THAT(diagnostics.render(), Catch::Contains("W0502") && Catch::Contains("left runs before right"));
  std::string order;
  for (const piper::plan::Instruction& in : compiled->plan.programs[static_cast<size_t>(compiled->plan.ranks[1].program)].instructions) {
    const std::string next = in.tensor.substr(0, 1) + std::to_string(in.microbatch) + " ";
    // A stage of this model is several chunks.
    if (in.opcode == piper::plan::Opcode::kCompute && in.tensor[0] != 'c' && !order.ends_with(next)) order += next;
  }
  INFO(order);
  CHECK(order.starts_with("F0 F2 B0 "));  // B2 is in no order
}

TEST_CASE("values are redistributed between placements of any width, and gradients back") {
  // 4 replicas, 1, 3: uneven shares, and a skip connection and a mask that go further than to the next stage.
  const std::string end = train(kMse, "sgd(lr = 0.05, momentum = 0.9)", 13);
  const std::string tags = "tag layer = i where path \"layers.{i}.**\"\ntag stage = balanced(layer, 3)\n";
  for (const char* split : {"", "split all() into 3 as mb\n"}) {
    check_equal("mlp", std::string("mesh dev[a = 3, b = 3]\nreplicate all() over b\n") + tags + split +
                           "place all(stage = 0) on dev[a = 0]\nplace all(stage = 1) on dev[a = 1, b = 0]\nplace all(stage = 2) on dev[a = 2]\n" + end, end);
    check_equal("mlp", std::string("mesh dev[a = 2, b = 2, c = 2]\nreplicate all() over b zero 2 bucket 1KiB\nreplicate all() over c\n") + tags + split +
                           "place all(stage = 0) on dev[a = 1, b = 0, c = 0]\nplace all(stage = 1) on dev[a = 0]\nplace all(stage = 2) on dev[a = 1, b = 1]\n" + end, end);
  }
}

TEST_CASE("the gradient of a value without samples comes back from every replica once") {
  // T5's position bias is made by the first block and read by the others.
  const std::string end = train("cross_entropy(logits = output \"logits\", target = input \"labels\")", "sgd(lr = 0.05, momentum = 0.9)", 13);
  const std::string tags = "tag layer = i where path \"**.block.{i}.**\"\ntag stage = balanced(layer, 2)\nsplit all() into 2 as mb\nreplicate all() over b\n";
  for (const char* places : {"place all(stage = 0) on dev[a = 0, b = 1]\nplace all(stage = 1) on dev[a = 1]\n",
                             "place all(stage = 0) on dev[a = 0]\nplace all(stage = 1) on dev[a = 1, b = 0]\n"}) {
    check_equal("t5_tiny", "mesh dev[a = 2, b = 3]\n" + tags + places + end, end);
  }
}

TEST_CASE("two data axes are one share of the batch each") {
  const std::string end = train(kMse, "adam(lr = 1e-3, eps = 1e-3)", 13);
  check_equal("mlp", std::string("mesh dev[a = 2, pp = 2, b = 2]\nreplicate all() over a\nreplicate all() over b\n") + kTags +
                         "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1) on dev[pp = 1]\nsplit all() into 2 as mb\n" + end, end);
}

TEST_CASE("frozen parameters stay, and nothing is reduced for them") {
  const std::string end = "freeze param \"layers.0.**\"\nfreeze param \"layers.1.**\"\n" + train(kMse, "adamw(lr = 1e-2, eps = 1e-3)", 8);
  const std::string text = std::string("mesh dev[pp = 2, dp = 2]\nreplicate all() over dp\ntag layer = i where path \"layers.{i}.**\"\n"
                                       "tag stage = if layer < 2 then 0 else 1\n"
                                       "place all(stage = 0) on dev[pp = 0]\nplace all(stage = 1) on dev[pp = 1]\nsplit all() into 2 as mb\n") + end;
  check_equal("mlp", text, end);
  const StrategyFile file(text);
  const Result result = run(cell_of(file, "mlp"), 3);
  CHECK(result.gradients.count("layers.0.fc.weight") == 0);
  CHECK(result.gradients.count("layers.4.fc.weight") == 1);
  const StrategyFile still(train(kMse, "sgd(lr = 0.0)", 8));
  const Result initial = run(cell_of(still, "mlp"), 1);
  CHECK(result.weights.at("layers.0.fc.weight") == initial.weights.at("layers.0.fc.weight"));
  CHECK(result.weights.at("layers.4.fc.weight") != initial.weights.at("layers.4.fc.weight"));
}

TEST_CASE("several loss terms, smoothing, and microbatches without a valid target") {
  const std::string two = train("mse(prediction = output \"prediction\", target = input \"y\") + 0.5 * mse(prediction = output \"prediction\", target = input \"y\")",
                                "sgd(lr = 0.02, momentum = 0.9, nesterov = true)", 9);
  check_equal("mlp", "mesh dev[dp = 2]\nreplicate all() over dp\nsplit all() into 3 as mb\n" + two, two);
  // gpt_tiny's sample 2 has no valid target: one microbatch, and one replica of another, is without any.
  const std::string smooth = train("cross_entropy(logits = output \"logits\", target = input \"labels\", label_smoothing = 0.1)",
                                   "adamw(lr = 1e-3, eps = 1e-3)", 8, "no_decay param \"**.bias\"  schedule linear(warmup = 2, total = 10, floor = 1e-4)");
  check_equal("gpt_tiny", "split all() into 8 as mb\n" + smooth, smooth);
  check_equal("gpt_tiny", "mesh dev[dp = 4]\nreplicate all() over dp bucket 16KiB\nsplit all() into 2 as mb\n" + smooth, smooth);
}
