// Valid plans pass; each kind of fault is found, named, and explained.
#include <catch2/catch.hpp>
#include <algorithm>
#include <chrono>

#include "plan/check.h"
#include "tests/verify/plan_builder.h"
#include "verify/verify.h"

namespace {

using namespace piper;
using plan::Instruction;
using plan::Opcode;
using plan::Plan;
using support::Code;
using verify::Finding;

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += to_string(finding);
  return text;
}

int find(const Plan& plan, int program, Opcode opcode, int microbatch = -1) {
  const std::vector<Instruction>& list = plan.programs[program].instructions;
  for (size_t i = 0; i < list.size(); i++) {
    if (list[i].opcode == opcode && (microbatch < 0 || list[i].microbatch == microbatch)) return static_cast<int>(i);
  }
  FAIL("the plan has no such instruction");
  return -1;
}

bool has(const std::vector<Finding>& findings, Code code) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) { return f.code == code; });
}

}  // namespace

TEST_CASE("valid plans are proved") {
  for (const auto& [name, options] : testing::plan_family()) {
    INFO(name);
    std::vector<Finding> findings = verify::verify(testing::build_plan(options));
    INFO(text_of(findings));
    CHECK(findings.empty());
  }
}

namespace {

struct Pipeline {
  Plan plan = testing::build_plan({.widths = {1, 1}, .microbatches = 3, .batch = 6});
  std::vector<Instruction>& program(int p) { return plan.programs[p].instructions; }
  Instruction& first(int p, Opcode opcode, int microbatch = -1) { return program(p)[find(plan, p, opcode, microbatch)]; }
};

// Everything that the findings say, after a check that there are some of that code.
std::string expect(const Plan& plan, Code code) {
  std::vector<Finding> findings = verify::verify(plan);
  std::string text = text_of(findings);
  INFO(text);
  CHECK(has(findings, code));
  return text;
}

}  // namespace

TEST_CASE("a message with another tag has no partner") {
  Pipeline p;
  p.first(0, Opcode::kSend).tag = 99;
  std::string text = expect(p.plan, Code::E0602);
  CHECK_THAT(text, Catch::Contains("has no matching recv") && Catch::Contains("has no matching send"));
  CHECK_THAT(text, Catch::Contains("`h0` of microbatch 0 to rank 1 (tag 99)"));
}

TEST_CASE("a send and its receive agree on size, type, tensor and microbatch") {
  Pipeline size, dtype, tensor, microbatch;
  size.first(0, Opcode::kSend).ranges[0].per_sample = 8;
  CHECK_THAT(expect(size.plan, Code::E0602), Catch::Contains("16 bytes against 32"));
  dtype.first(0, Opcode::kSend).dtype = plan::DType::kBF16;
  CHECK_THAT(expect(dtype.plan, Code::E0602), Catch::Contains("bf16 against f32"));
  tensor.first(0, Opcode::kSend).tensor = "other";
  CHECK_THAT(expect(tensor.plan, Code::E0602), Catch::Contains("tensor `other` against `h0`"));
  // Microbatches change places on one side only: equal shapes, wrong values.
  std::swap(microbatch.first(0, Opcode::kSend, 0).tag, microbatch.first(0, Opcode::kSend, 1).tag);
  CHECK_THAT(expect(microbatch.plan, Code::E0602), Catch::Contains("microbatch"));
}

TEST_CASE("a channel is used once in a step") {
  Pipeline p;
  p.first(0, Opcode::kSend, 1).tag = p.first(0, Opcode::kSend, 0).tag;
  CHECK_THAT(expect(p.plan, Code::E0602), Catch::Contains("is used more than once"));
}

TEST_CASE("members of a group run the same collectives in the same order") {
  Plan plan = testing::build_plan({.widths = {1, 1, 1}, .tied = true});
  int tied = find(plan, 2, Opcode::kAllReduce);
  SECTION("sizes") {
    plan.programs[2].instructions[tied].ranges[0].fixed = 64;
    CHECK_THAT(expect(plan, Code::E0603), Catch::Contains("128 bytes against 64"));
  }
  SECTION("one is missing") {
    std::vector<Instruction>& list = plan.programs[2].instructions;
    list.back().waits.clear();
    list.erase(list.begin() + tied);
    for (Instruction& i : list) {
      std::erase(i.waits, tied);
      for (int32_t& w : i.waits) w -= w > tied ? 1 : 0;
    }
    CHECK_THAT(expect(plan, Code::E0603), Catch::Contains("different numbers of collectives"));
  }
  SECTION("another type") {
    plan.programs[0].instructions[find(plan, 0, Opcode::kAllReduce)].dtype = plan::DType::kF64;
    CHECK_THAT(expect(plan, Code::E0606), Catch::Contains("all_reduce as f64 of buffer `tied.g`, which has another type"));
  }
}

TEST_CASE("collectives of one group with equal tags must not run at once") {
  Plan plan = testing::build_plan({.widths = {2}, .microbatches = 1, .batch = 4});
  plan::Program& program = plan.programs[0];
  program.streams.push_back({"reduce 2", plan::StreamKind::kCollective});
  program.instructions[find(plan, 0, Opcode::kAllReduce)].stream = static_cast<int>(program.streams.size()) - 1;
  // Now only the waits of what uses the results order them; the gradients' all-reduce needs none for the counts.
  std::vector<Finding> findings = verify::verify(plan);
  CHECK(findings.empty());  // counts -> backward -> gradients, ordered by the data
  Instruction free = program.instructions[find(plan, 0, Opcode::kAllReduce)];
  free.stream = 6;
  free.waits.clear();
  free.tensor = "free";
  free.ranges[0] = {program.stats_buffer, 0, 8, 0, plan::Access::kReadWrite};
  program.instructions.insert(program.instructions.begin() + find(plan, 0, Opcode::kAllReduce) + 1, free);
  CHECK_THAT(expect(plan, Code::E0603), Catch::Contains("may run at once"));
}

TEST_CASE("two ranks that both send first deadlock, and the circle is printed") {
  // Sends and receives share a stream on both ranks: each sends before it receives.
  Pipeline p;
  for (plan::Program& program : p.plan.programs) {
    for (Instruction& i : program.instructions) {
      if (i.opcode == Opcode::kSend || i.opcode == Opcode::kRecv) i.stream = 2;
    }
  }
  // Rank 0 sends microbatch 1 before it receives the gradient of 0; rank 1 sends that gradient before it receives 1.
  std::vector<Instruction>& list = p.program(1);
  int receive = -1, send = -1;
  for (size_t i = 0; i < list.size(); i++) {
    if (list[i].opcode == Opcode::kRecv && list[i].microbatch == 1) receive = static_cast<int>(i);
    if (list[i].opcode == Opcode::kSend && list[i].microbatch == 0) send = static_cast<int>(i);
  }
  REQUIRE(receive > send);
  std::string text = expect(p.plan, Code::E0604);
  CHECK_THAT(text, Catch::Contains("wait for each other in a circle"));
  CHECK_THAT(text, Catch::Contains("which is before it on its stream") && Catch::Contains("which completes only together with"));
  CHECK_THAT(text, Catch::Contains("rank 0") && Catch::Contains("rank 1"));
}

TEST_CASE("collectives in different orders on two groups deadlock") {
  Plan plan = testing::build_plan({.widths = {1, 1, 1}, .tied = true});
  // In the last stage the statistics go first; group by group the sequences stay equal.
  std::vector<Instruction>& list = plan.programs[2].instructions;
  int tied = find(plan, 2, Opcode::kAllReduce);
  int stats = tied;
  while (list[stats].tensor != "stats") stats++;
  list[tied].waits.clear();
  list[stats].waits.clear();
  std::swap(list[tied], list[stats]);
  CHECK_THAT(expect(plan, Code::E0604), Catch::Contains("all_reduce"));
}

TEST_CASE("ranks of one program that talk in turn are no deadlock") {
  // A ring of three ranks with one program: each sends to the next and receives from the one before, on two streams.
  Plan plan;
  plan::Program program;
  program.name = "ring";
  program.streams = {{"send", plan::StreamKind::kSend}, {"recv", plan::StreamKind::kRecv}};
  program.buffers = {{"a", plan::BufferKind::kConstant, plan::DType::kF32, 0, 64, true},
                     {"b", plan::BufferKind::kCommunication, plan::DType::kF32, 64, 64, false}};
  program.arena_bytes = 128;
  Instruction send;
  send.opcode = Opcode::kSend;
  send.peer = 0;
  send.ranges = {{0, 0, 64, 0, plan::Access::kRead}};
  Instruction recv = send;
  recv.opcode = Opcode::kRecv;
  recv.stream = 1;
  recv.peer = 1;
  recv.ranges = {{1, 0, 64, 0, plan::Access::kWrite}};
  program.instructions = {send, recv};
  plan.programs = {program};
  for (int r = 0; r < 3; r++) {
    plan.ranks.push_back({0, {}, {(r + 1) % 3, (r + 2) % 3}});
  }
  std::vector<Finding> findings = verify::verify(plan);
  INFO(text_of(findings));
  CHECK(findings.empty());
  // On one stream every rank sends first.
  plan.programs[0].instructions[1].stream = 0;
  CHECK_THAT(expect(plan, Code::E0604), Catch::Contains("3 instructions wait for each other"));
}

TEST_CASE("a missing wait is a race that names both uses") {
  Pipeline p;
  int forward = 0;
  auto is_forward = [&](const Instruction& i) { return i.opcode == Opcode::kCompute && p.plan.chunks[i.chunk].name == "F1"; };
  while (!is_forward(p.program(1)[forward])) forward++;
  REQUIRE(!p.program(1)[forward].waits.empty());
  p.program(1)[forward].waits.clear();
  std::string text = expect(p.plan, Code::E0605);
  CHECK_THAT(text, Catch::Contains("touch the same bytes and nothing orders them"));
  CHECK_THAT(text, Catch::Contains("writes `h_in0`") && Catch::Contains("reads `h_in0`"));
  CHECK_THAT(text, Catch::Contains("would order them"));
  CHECK_THAT(text, Catch::Contains("asked for by pipeline.piper:3"));
}

TEST_CASE("a buffer that is reused too early is found") {
  // The receive of microbatch 2 lands in the bytes of microbatch 0, still needed by its backward pass.
  Plan plan = testing::build_plan({.widths = {1, 1}, .microbatches = 3, .batch = 6, .reuse = false});
  plan::Program& program = plan.programs[1];
  plan::Buffer* buffers[2] = {};
  for (plan::Buffer& buffer : program.buffers) {
    if (buffer.name == "h_in0") buffers[0] = &buffer;
    if (buffer.name == "h_in1") buffers[1] = &buffer;
  }
  buffers[1]->offset = buffers[0]->offset;
  expect(plan, Code::E0605);
}

TEST_CASE("what is read has been written in the step, and is still there") {
  SECTION("never written") {
    Pipeline p;
    for (plan::Buffer& buffer : p.plan.programs[0].buffers) {
      if (buffer.name == "own.g") buffer.persistent = false;
    }
    std::erase_if(p.program(0).front().ranges, [](auto&) { return false; });
    p.program(0).front().ranges[0].fixed = 64;  // the zeroing leaves the bias's half
    CHECK_THAT(expect(p.plan, Code::E0605), Catch::Contains("nothing has written in this step"));
  }
  SECTION("overwritten by another buffer") {
    Pipeline p;
    plan::Program& program = p.plan.programs[0];
    plan::Buffer *x = nullptr, *out = nullptr;
    for (plan::Buffer& buffer : program.buffers) {
      if (buffer.name == "x0") x = &buffer;
      if (buffer.name == "h_out0") out = &buffer;
    }
    out->offset = x->offset;
    CHECK_THAT(expect(p.plan, Code::E0605), Catch::Contains("have become those of") || Catch::Contains("uses otherwise"));
  }
  SECTION("persistent buffers are nobody else's") {
    Pipeline p;
    plan::Program& program = p.plan.programs[0];
    for (plan::Buffer& buffer : program.buffers) {
      if (buffer.name == "x1") buffer.offset = program.buffers[1].offset;
    }
    CHECK_THAT(expect(p.plan, Code::E0605), Catch::Contains("one of them lives across steps"));
  }
}

TEST_CASE("ranges of one instruction do not overlap where one is written") {
  Pipeline p;
  Instruction& update = p.first(0, Opcode::kUpdate);
  update.ranges[3] = update.ranges[2];
  CHECK_THAT(expect(p.plan, Code::E0605), Catch::Contains("also uses otherwise"));
}

TEST_CASE("an all-reduce before the last contribution is found") {
  Plan plan = testing::build_plan({.widths = {2}, .microbatches = 2, .batch = 4});
  std::vector<Instruction>& list = plan.programs[0].instructions;
  int backward = -1, reduce = -1;
  for (size_t i = 0; i < list.size(); i++) {
    if (list[i].opcode == Opcode::kCompute && plan.chunks[list[i].chunk].name == "B0") backward = static_cast<int>(i);
    if (list[i].tensor == "own.g") reduce = static_cast<int>(i);
  }
  REQUIRE(reduce == backward + 1);
  std::swap(list[backward], list[reduce]);
  std::erase(list[backward].waits, backward);
  list[reduce].waits.push_back(backward);
  CHECK_THAT(expect(plan, Code::E0607), Catch::Contains("not the sum of all contributions, each once"));
}

TEST_CASE("the contract's accounts") {
  Pipeline p;
  SECTION("a microbatch that runs twice") {
    for (Instruction& i : p.program(0)) {
      if (i.opcode == Opcode::kCompute && p.plan.chunks[i.chunk].name == "B0" && i.microbatch == 1) i.microbatch = 0;
    }
    CHECK_THAT(expect(p.plan, Code::E0607), Catch::Contains("gradient of `layers.0.weight` does not get every sample"));
  }
  SECTION("a chunk that never runs") {
    p.plan.contract.chunk_hashes[0] ^= 0xff00ff00;
    CHECK_THAT(expect(p.plan, Code::E0607), Catch::Contains("chunk `F0` of the model is never computed"));
  }
  SECTION("a parameter that is not updated") {
    p.plan.updates[0].runs.pop_back();
    CHECK_THAT(expect(p.plan, Code::E0607), Catch::Contains("parameter `layers.0.bias`") && Catch::Contains("never updated"));
  }
  SECTION("a frozen parameter that is updated") {
    p.plan.params[0].trainable = false;
    CHECK_THAT(expect(p.plan, Code::E0607), Catch::Contains("is frozen but written"));
  }
  SECTION("a parameter that nobody saves") {
    p.plan.programs[0].params[0].owner = false;
    CHECK_THAT(expect(p.plan, Code::E0607), Catch::Contains("saved by 0 programs"));
  }
  SECTION("a gradient that keeps the last step's") {
    std::swap(p.program(0)[0].ranges, p.program(0)[1].ranges);
    p.program(0)[1].ranges = p.program(0)[0].ranges;  // statistics twice, gradients never
    CHECK_THAT(expect(p.plan, Code::E0605), Catch::Contains("reads bytes of `own.g` that nothing has written in this step"));
  }
  SECTION("a contribution of a second use is lost") {
    p.plan.contract.contributions.push_back({0, 1});
    CHECK_THAT(expect(p.plan, Code::E0607), Catch::Contains("1 times instead of 2"));
  }
  SECTION("loss weights") {
    p.plan.contract.loss_weights[0] = 2;
    CHECK_THAT(expect(p.plan, Code::E0607), Catch::Contains("weights of the loss"));
  }
}

TEST_CASE("what scales, counts and bounds gradients is complete") {
  Plan plan = testing::build_plan({.widths = {2}, .microbatches = 2, .batch = 4});
  auto by_tensor = [&](const std::string& tensor) -> Instruction& {
    auto& list = plan.programs[0].instructions;
    return *std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
      return i.opcode == Opcode::kAllReduce && i.tensor == tensor;
    });
  };
  // A local operation in place of an all-reduce keeps the order and loses the sum.
  auto make_local = [&](Instruction& i) {
    i.opcode = Opcode::kAllReduce;
    i.group = 1;
  };
  plan.groups = {plan.groups[0], {"alone 0", {0}}, {"alone 1", {1}}, plan.groups[1]};
  for (int r : {0, 1}) plan.ranks[r].groups = {0, 1 + r, 3};
  for (Instruction& i : plan.programs[0].instructions) {
    if (i.group == 1) i.group = 2;
  }
  REQUIRE(verify::verify(plan).empty());
  SECTION("counts") {
    make_local(by_tensor("valid"));
    CHECK_THAT(expect(plan, Code::E0607), Catch::Contains("the number of valid elements of loss `mse` is not the sum"));
  }
  SECTION("gradients") {
    make_local(by_tensor("own.g"));
    CHECK_THAT(expect(plan, Code::E0607), Catch::Contains("the gradient of `layers.0.weight` is not the sum"));
  }
  SECTION("the norm") {
    make_local(by_tensor("stats"));
    CHECK_THAT(expect(plan, Code::E0607), Catch::Contains("the gradient norm is not the sum") && Catch::Contains("the sum of loss"));
  }
  SECTION("copies counted twice by the norm") {
    plan.programs[0].instructions[find(plan, 0, Opcode::kNorm)].scale = 1;
    CHECK_THAT(expect(plan, Code::E0607), Catch::Contains("2 times instead of once"));
  }
}

TEST_CASE("microbatches do not mix, and do alike") {
  Plan plan = testing::build_plan({.widths = {1}, .microbatches = 3, .batch = 6, .reuse = false});
  auto& list = plan.programs[0].instructions;
  int forward = -1;
  for (size_t i = 0; i < list.size(); i++) {
    if (list[i].opcode == Opcode::kCompute && plan.chunks[list[i].chunk].name == "F0" && list[i].microbatch == 1) forward = static_cast<int>(i);
  }
  auto buffer = [&](const std::string& name) {
    const auto& buffers = plan.programs[0].buffers;
    return static_cast<int>(std::find_if(buffers.begin(), buffers.end(), [&](const plan::Buffer& b) { return b.name == name; }) - buffers.begin());
  };
  SECTION("labels of one microbatch meet outputs of another") {
    list[forward].ranges[2].buffer = buffer("target0");
    CHECK_THAT(expect(plan, Code::E0607), Catch::Contains("reads what belongs to another microbatch"));
  }
  SECTION("one microbatch is wired differently") {
    list[forward].ranges[0].buffer = buffer("target1");
    CHECK_THAT(expect(plan, Code::E0607), Catch::Contains("does not use what the same work of another microbatch uses"));
  }
}

TEST_CASE("a malformed plan is refused before anything else") {
  Pipeline p;
  p.first(0, Opcode::kSend).ranges[0].buffer = 1000;
  std::vector<Finding> findings = verify::verify(p.plan);
  REQUIRE(!findings.empty());
  CHECK(findings.front().code == Code::E0606);
  CHECK_THAT(findings.front().message, Catch::Contains("the buffer of a range does not exist"));
}

TEST_CASE("eight ranks with a thousand instructions each take milliseconds") {
  testing::PlanOptions options{.widths = {2, 2, 2, 2}, .microbatches = 170, .batch = 340};
  Plan plan = testing::build_plan(options);
  REQUIRE(plan.programs[1].instructions.size() > 1000);
  auto begin = std::chrono::steady_clock::now();
  std::vector<Finding> findings = verify::verify(plan);
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  INFO(text_of(findings));
  CHECK(findings.empty());
  WARN("verified " << plan.programs[1].instructions.size() << " instructions x 8 ranks in " << ms << " ms");
  // Generous, so that a busy machine or a sanitizer does not fail it; a quadratic verifier would.
  CHECK(ms < 5000);
}
