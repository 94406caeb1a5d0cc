// The real executor in real processes gives the bits that it gives in threads. This binary is its own worker.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "plan/plan_io.h"
#include "runtime/launch.h"
#include "runtime/random.h"
#include "runtime/safetensors.h"
#include "tests/runtime/tiny_plan.h"
#include "tests/temp_folder.h"

namespace piper::runtime {

namespace {

void write_samples(const std::string& path, int64_t count) {
  auto writer = SafetensorsWriter::create(
      path, {{"x", ir::DType::kF32, {count, kIn}}, {"y", ir::DType::kF32, {count, kOut}}});
  REQUIRE(writer);
  for (int64_t width : {kIn, kOut}) {
    std::vector<float> values(static_cast<size_t>(count * width));
    const uint64_t key = static_cast<uint64_t>(width);
    for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(random_normal(key, i));
    REQUIRE(writer->append(values.data(), values.size() * sizeof(float)));
  }
  REQUIRE(writer->finish());
}

std::vector<float> trained_weights(const std::string& folder) {
  auto file = SafetensorsFile::open(folder + "/model.safetensors");
  REQUIRE(file);
  const TensorView* tensor = file->find("layer.weight");
  REQUIRE(tensor);
  const auto* begin = reinterpret_cast<const float*>(tensor->data.data());
  return {begin, begin + tensor->data.size() / sizeof(float)};
}

// Trains a plan in threads and in processes; everything must be equal.
void require_same(const plan::Plan& plan) {
  test::TempFolder folder;
  write_samples(folder.file("data.safetensors"), 24);
  REQUIRE(plan::write_plan(plan, folder.file("plan")));
  std::vector<RunSummary> summaries;
  std::vector<std::vector<float>> weights;
  for (const bool in_process : {true, false}) {
    LaunchOptions options;
    options.plan_folder = folder.file("plan");
    options.in_process = in_process;
    options.quiet = true;
    options.run.data = folder.file("data.safetensors");
    options.run.steps = 5;
    options.run.save = folder.file(in_process ? "threads" : "processes");
    auto summary = launch(plan, options);
    INFO((summary ? "" : summary.error().message));
    REQUIRE(summary);
    summaries.push_back(*summary);
    weights.push_back(trained_weights(options.run.save));
  }
  CHECK(summaries[0].losses.size() == 5);
  CHECK(summaries[0].losses == summaries[1].losses);
  CHECK(summaries[0].grad_norms == summaries[1].grad_norms);
  CHECK(summaries[0].losses.front() > summaries[0].losses.back());
  CHECK(weights[0] == weights[1]);
}

}  // namespace

TEST_CASE("one rank", "[process]") {
  plan::Plan plan = linear_plan_base(6, 1);
  add_linear_program(&plan, {{6}});
  require_same(plan);
}

TEST_CASE("ranks that share the samples", "[process]") {
  plan::Plan plan = linear_plan_base(6, 2);
  add_linear_program(&plan, {{1, 1}, {1, 0}, {1, 2}});
  require_same(plan);
}

TEST_CASE("ranks that send each other activations and gradients", "[process]") {
  plan::Plan plan = linear_plan_base(6, 2);
  add_split_programs(&plan, {2, 4});
  require_same(plan);
}

TEST_CASE("data that is not there is an error before any rank starts", "[process]") {
  plan::Plan plan = linear_plan_base(6, 1);
  add_linear_program(&plan, {{3}, {3}});
  LaunchOptions options;
  options.plan_folder = "/nonexistent";
  options.run.data = "/nonexistent/data.safetensors";
  auto failed = launch(plan, options);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message.find("/nonexistent/data.safetensors") != std::string::npos);
}

}  // namespace piper::runtime

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "worker") return piper::runtime::worker_main();
  return Catch::Session().run(argc, argv);
}
