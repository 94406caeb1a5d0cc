// P1: a strategy never changes the numbers. Every cell against one device, and one device against PyTorch.
#include "tests/p1/run_cell.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

using namespace piper::p1;

namespace {

constexpr double kTolerance = 1e-5;
constexpr int kSteps = 3;

// Noise is compared on the scale of the model's largest gradient.
Difference compare_with_floor(Result a, Result b) {
  const double floor = noise_floor(b.gradients);
  for (auto& [name, values] : b.gradients) {
    double largest = 0;
    for (double v : values) largest = std::max(largest, std::abs(v));
    if (largest > floor || !a.gradients.count(name)) continue;
    double mine = 0;
    for (double v : a.gradients[name]) mine = std::max(mine, std::abs(v));
    if (mine > floor * 10) continue;  // not noise: let the comparison fail
    a.gradients[name] = values;
  }
  return compare(a, b);
}

void check_cells(const std::vector<Cell>& cells) {
  std::map<std::string, Result> references;
  fmt::print("{:<78} {:>8} {:>8} {:>8} {:>8}\n", "cell", "loss", "norm", "grads", "weights");
  for (const Cell& cell : cells) {
    INFO(cell.name());
    auto it = references.find(cell.reference_key());
    if (it == references.end()) it = references.emplace(cell.reference_key(), run(cell.reference(), kSteps)).first;
    INFO(it->second.error);
    REQUIRE(it->second.error.empty());
    const Result result = run(cell, kSteps);
    INFO(result.error);
    CHECK(result.error.empty());
    if (!result.error.empty()) continue;
    REQUIRE(result.losses.size() == kSteps);
    const Difference d = compare_with_floor(result, it->second);
    fmt::print("{:<78} {:8.1e} {:8.1e} {:8.1e} {:8.1e}\n", cell.name(), d.loss, d.norm, d.gradients, d.weights);
    INFO("largest difference in " << d.worst);
    CHECK(d.loss < kTolerance);
    CHECK(d.norm < kTolerance);
    CHECK(d.gradients < kTolerance);
    CHECK(d.weights < kTolerance);
  }
  fmt::print("{} cells\n", cells.size());
}

// Golden values of PyTorch for models that hold a part of their tensors only are compared where they are given.
void check_golden(const std::string& name, const std::map<std::string, std::string>& sets, const std::string& exporter = "") {
  INFO(name << exporter);
  Cell cell;
  cell.model = {name, fmt::format("models/{0}/{0}{1}.onnx", name, exporter), fmt::format("models/{}/data.safetensors", name), {}, 4};
  cell.strategy = "single";
  cell.defines = {{"microbatches", "1"}};
  cell.sets = sets;
  cell.sets["train.batch"] = "8";
  cell.sets["train.optimizer"] = "adamw(lr = 1e-3, betas = [0.9, 0.95], eps = 1e-3, weight_decay = 0.1)";
  cell.sets["train.schedule"] = "constant(warmup = 0)";
  cell.sets["train.clip_norm"] = "1e9";
  const Result result = run(cell, kSteps);
  INFO(result.error);
  REQUIRE(result.error.empty());
  const Tensors golden = read_tensors(fmt::format("models/{}/golden.safetensors", name));
  REQUIRE_FALSE(golden.empty());
  for (int step = 0; step < kSteps; ++step) {
    CHECK(result.losses[static_cast<size_t>(step)] == Approx(golden.at(fmt::format("loss64.{}", step))[0]).epsilon(kTolerance));
  }
  CHECK(result.grad_norms[0] == Approx(golden.at("norm.0")[0]).epsilon(kTolerance));
  const double floor = noise_floor(result.gradients);
  int compared = 0;
  double worst = 0;
  for (const auto& [key, values] : golden) {
    const bool gradient = key.rfind("grad.", 0) == 0, weight = key.rfind("weight.", 0) == 0;
    if (!gradient && !weight) continue;
    const std::string tensor = key.substr(key.find('.') + 1);
    const Tensors& ours = gradient ? result.gradients : result.weights;
    if (!ours.count(tensor)) continue;  // the other name of a tied parameter
    INFO(key);
    double largest = 0;
    for (double v : values) largest = std::max(largest, std::abs(v));
    if (gradient && largest <= floor) continue;
    const double difference = relative_difference(ours.at(tensor), values);
    worst = std::max(worst, difference);
    CHECK(difference < kTolerance);
    ++compared;
  }
  CHECK(compared >= 10);
  fmt::print("{:<20} {} tensors against PyTorch, largest difference {:.1e}\n", name + exporter, compared, worst);
}

}  // namespace

TEST_CASE("one device gives PyTorch's losses, gradients and weights") {
  const auto mse = models()[0].sets;
  check_golden("mlp", mse);
  for (const char* name : {"gpt_tiny", "llama_tiny", "gpt", "llama", "bert_tiny", "t5_tiny", "rnn_tiny"}) check_golden(name, {});
  for (const char* name : {"bert_tiny", "t5_tiny", "rnn_tiny"}) check_golden(name, {}, ".dynamo");
  std::map<std::string, std::string> image{{"train.loss", "cross_entropy(logits = output \"logits\", target = input \"label\")"}};
  for (const char* exporter : {"", ".dynamo"}) {
    check_golden("vit_tiny", image, exporter);
    check_golden("cnn_gn", image, exporter);
  }
  for (const char* name : {"own_loss", "moe_tiny", "moe_capacity"}) {
    for (const char* exporter : {"", ".dynamo"}) check_golden(name, {{"train.loss", "mean(output \"loss\")"}}, exporter);
  }
  check_golden("cnn_bn", image);
  image["train.batch_norm"] = "training";  // torch.export writes the inference form
  check_golden("cnn_bn", image, ".dynamo");
}

TEST_CASE("every strategy gives the numbers of one device, on threads") { check_cells(matrix()); }

TEST_CASE("strategies give the numbers of one device, as processes") { check_cells(process_cells()); }
