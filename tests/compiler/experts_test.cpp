// Mixtures of experts under strategies: equal numbers however the batch is cut and wherever the stages are, with idle
// and with crowded experts; and what is refused.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/compiler/expert_network.h"

using namespace piper;
using p1::Result;
using testing::Bench;
using testing::bench_of;
using testing::check_equal;
using testing::data_parallel;
using testing::Form;
using testing::kExperts;
using testing::kHidden;
using testing::kWidth;
using testing::Network;

namespace {

// Two stages, the second of which starts at `second`.
std::string pipeline(const std::string& second, int dp, int microbatches) {
  return fmt::format(
      "use pipeline\nmesh dev[pp = 2, dp = {0}]\n"
      "tag stage = 1 where {1}\ntag stage = 0 where not ({1})\n"
      "for s in 0..2 {{ place all(stage = s) on dev[pp = s] }}\nreplicate all() over dp\nsplit all() into {2} as mb\n"
      "for r in 0..2 {{ order pipeline.one_f_one_b(r, 2, {2}) }}\n",
      dp, second, microbatches);
}
constexpr const char* kAfter = "path \"layers.2.**\"";
constexpr const char* kInside = "path \"layers.2.**\" or path \"layers.1.down\" or path \"layers.1\"";

bool all_zero(const std::vector<double>& values, size_t begin, size_t end) {
  return std::all_of(values.begin() + static_cast<std::ptrdiff_t>(begin),
                     values.begin() + static_cast<std::ptrdiff_t>(end), [](double v) { return v == 0; });
}

}  // namespace

TEST_CASE("experts give equal numbers under every cut of the batch") {
  const int64_t choices = GENERATE(1, 2);
  const Form form = GENERATE(Form::kPicked, Form::kPadded);
  const Bench bench = bench_of(Network(form, choices, {0, 0, 0, 0}, form == Form::kPadded ? 2 : 0));
  const Result reference = bench.run(bench.strategy("", 11, "clip_norm 0.5"));
  for (const std::string& text :
       {data_parallel(1, 3), data_parallel(2, 1), data_parallel(2, 3), data_parallel(4, 2), pipeline(kAfter, 1, 4),
        pipeline(kAfter, 2, 3), pipeline(kInside, 1, 3), pipeline(kInside, 2, 2)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 11, "clip_norm 0.5")), reference);
  }
  check_equal(bench.run(bench.strategy(pipeline(kInside, 2, 2), 11, "clip_norm 0.5"), 3, true), reference);
  // The second stage got the places of the rows and their numbers from the first.
  std::set<std::string> sent;
  for (const plan::Program& program : bench.compile(bench.strategy(pipeline(kInside, 2, 2), 11, "")).programs) {
    for (const plan::Instruction& instruction : program.instructions) {
      if (instruction.opcode == plan::Opcode::kSend && instruction.tensor.find("MoERoute") != std::string::npos)
        sent.insert(instruction.tensor);
    }
  }
  CHECK(sent.size() == 2);
}

TEST_CASE("a form that is found trains like the graph as it was") {
  const int64_t choices = GENERATE(1, 2);
  const Form form = GENERATE(Form::kPicked, Form::kPadded);
  const int64_t capacity = form == Form::kPadded ? 2 : 0;
  const Bench found = bench_of(Network(form, choices, {0, 0, 0, 0}, capacity)),
              hidden = bench_of(Network(form, choices, {0, 0, 0, 0}, capacity, true));
  const auto products = [](const Bench& bench) {
    int count = 0;
    for (const plan::Chunk& chunk : bench.compile(bench.strategy("", 8, "")).chunks) {
      for (const plan::KernelCall& call : chunk.variants[0].calls) count += call.op == "GroupedLinear";
    }
    return count;
  };
  CHECK(products(found) == 4);  // two, and two for the gradients of their rows
  CHECK(products(hidden) == 0);
  check_equal(found.run(found.strategy("", 11, "clip_norm 0.5")), hidden.run(hidden.strategy("", 11, "clip_norm 0.5")));
}

TEST_CASE("an expert without tokens has no gradient, and one with all of them has all of it") {
  const bool crowded = GENERATE(false, true);
  const Bench bench = bench_of(Network(Form::kPicked, crowded ? 1 : 2,
                                       crowded ? std::vector<double>{0, 50, 0, 0} : std::vector<double>{0, 0, -50, 0}));
  const Result reference = bench.run(bench.strategy("", 11, ""));
  REQUIRE(reference.error == "");
  const size_t each = kWidth * kHidden;
  for (const char* name : {"layers.1.up", "layers.1.down"}) {
    for (size_t e = 0; e < kExperts; e++) {
      INFO(name << " of expert " << e);
      CHECK(all_zero(reference.gradients.at(name), e * each, (e + 1) * each) == (crowded ? e != 1 : e == 2));
    }
  }
  for (const std::string& text : {data_parallel(2, 3), data_parallel(4, 2), pipeline(kInside, 2, 2)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 11, "")), reference);
  }
}

TEST_CASE("a capacity over several samples forbids cutting the batch") {
  const Bench bench = bench_of(Network(Form::kPaddedFlat, 2, {0, 0, 0, 0}, 16));
  CHECK(bench.run(bench.strategy("", 11, "")).error == "");
  for (const std::string& text : {data_parallel(1, 2), data_parallel(2, 1)}) {
    const std::string messages = bench.messages(bench.strategy(text, 11, ""));
    INFO(messages);
    CHECK(messages.find("error[E0507]") != std::string::npos);
    CHECK(messages.find("MoERoute") != std::string::npos);
  }
}
