// `piper show`: goldens in tests/golden/plan, rewritten with PIPER_UPDATE=1 in the environment.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plan/show.h"
#include "tests/verify/plan_builder.h"

namespace {

using namespace piper;

void check_golden(const std::string& name, const std::string& text) {
  std::string path = "tests/golden/plan/" + name;
  if (std::getenv("PIPER_UPDATE")) {
    std::filesystem::create_directories("tests/golden/plan");
    std::ofstream(path) << text;
  }
  std::ifstream in(path);
  std::stringstream expected;
  expected << in.rdbuf();
  CHECK(text == expected.str());
}

}  // namespace

TEST_CASE("show prints a plan like a disassembler") {
  check_golden("pipeline.txt", plan::show(testing::build_plan({.widths = {1, 1}, .microbatches = 2, .batch = 4})));
  check_golden("narrow.txt", plan::show(testing::build_plan({.widths = {2, 1}, .microbatches = 2, .batch = 5, .tied = true})));
}

TEST_CASE("show --memory gives the peak by kind") {
  plan::Plan plan = testing::build_plan({.widths = {1, 1}, .microbatches = 3, .batch = 6});
  check_golden("memory.txt", plan::show_memory(plan));
  plan::MemoryPeak peak = plan::memory_peak(plan.programs[0]);
  int64_t sum = 0;
  for (int64_t bytes : peak.by_kind) sum += bytes;
  CHECK(sum == peak.total);
  // What is in use at once fits the arena.
  CHECK(peak.total <= plan.programs[0].arena_bytes);
  CHECK(peak.by_kind[static_cast<size_t>(plan::BufferKind::kParameter)] == 128);
  CHECK(peak.by_kind[static_cast<size_t>(plan::BufferKind::kOptimizer)] == 256);
}

TEST_CASE("a buffer counts from its first use to its last") {
  plan::Program program;
  program.streams = {{"compute"}};
  for (int b = 0; b < 3; b++) program.buffers.push_back({"b", plan::BufferKind::kActivation, plan::DType::kU8, 64 * b, 10 << b, b == 2});
  plan::Instruction zero;
  zero.opcode = plan::Opcode::kZero;
  for (int b : {0, 1, 1}) {
    zero.ranges = {{b, 0, 10, 0, plan::Access::kWrite}};
    program.instructions.push_back(zero);
  }
  plan::MemoryPeak peak = plan::memory_peak(program);
  CHECK(peak.total == 60);  // the persistent one, and the larger of two that do not meet
  CHECK(peak.instruction == 1);
}

TEST_CASE("show --json is JSON with the same numbers") {
  plan::Plan plan = testing::build_plan({});
  auto json = nlohmann::json::parse(plan::show_json(plan));
  CHECK(json["world"] == plan.world_size());
  CHECK(json["programs"].size() == plan.programs.size());
  CHECK(json["programs"][0]["instructions"].size() == plan.programs[0].instructions.size());
  CHECK(json["programs"][0]["memory"]["arena_bytes"] == plan.programs[0].arena_bytes);
}

TEST_CASE("names from strangers cannot steer a terminal") {
  plan::Plan plan = testing::build_plan({});
  plan.programs[0].buffers[0].name = "\x1b[2J\xff";
  CHECK(plan::show(plan).find('\x1b') == std::string::npos);
  CHECK(plan::show_memory(plan).find('\x1b') == std::string::npos);
  CHECK_NOTHROW(nlohmann::json::parse(plan::show_json(plan)));
}

TEST_CASE("ranks are written as intervals") {
  CHECK(plan::ranks_text({}) == "");
  CHECK(plan::ranks_text({3}) == "3");
  CHECK(plan::ranks_text({0, 1, 2, 3, 8, 10, 11}) == "0-3, 8, 10, 11");
}
