// Experts divided over an axis: the numbers of one device, however many experts, devices and tokens there are; what is
// divided; and what is refused.
#include <functional>
#include <set>

#include "tests/compiler/expert_network.h"
#include "verify/verify.h"

using namespace piper;
using p1::Result;
using testing::Bench;
using testing::bench_of;
using testing::check_equal;
using testing::Form;
using testing::kExperts;
using testing::kHidden;
using testing::kWidth;
using testing::Network;

namespace {

// Over the axis of the replicas.
std::string divided(int dp, int microbatches, const std::string& clauses = "", const std::string& replicate = "") {
  return fmt::format("mesh dev[dp = {}]\nreplicate all() over dp {}\nshard all() over dp as experts {}\nsplit all() into {} as mb\n", dp,
                     replicate, clauses, microbatches);
}

// Over an axis of its own.
std::string divided_beside(int dp, int ep, int microbatches, int zero = 0) {
  return fmt::format(
      "mesh dev[dp = {}, ep = {}]\nreplicate all() over dp zero {}\nreplicate all() over ep\nshard all() over ep as experts\n"
      "split all() into {} as mb\n",
      dp, ep, zero, microbatches);
}

// Two stages, the second with the experts.
std::string pipeline(const std::string& order, int microbatches, int ep = 2, const std::string& more = "") {
  return fmt::format(
      "use pipeline\nmesh dev[pp = 2, ep = {0}]\n"
      "tag stage = 0 where path \"layers.0.**\"\ntag stage = 1 where not path \"layers.0.**\"\n"
      "for s in 0..2 {{ place all(stage = s) on dev[pp = s] }}\nreplicate all() over ep\nshard all(stage = 1) over ep as experts\n"
      "split all() into {1} as mb\nfor r in 0..2 {{ order pipeline.{2}(r, 2, {1}) }}\n{3}",
      ep, microbatches, order, more);
}

const std::vector<double> kEven(kExperts, 0.0);

size_t count(const plan::Program& program, plan::Opcode opcode) {
  return static_cast<size_t>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                           [&](const plan::Instruction& in) { return in.opcode == opcode; }));
}

using plan::Instruction;
using plan::Opcode;

bool is_exchange(const Instruction& in) { return in.opcode == Opcode::kAllToAll && in.row_bytes > 0; }
bool is_count(const Instruction& in) { return in.opcode == Opcode::kAllToAll && in.row_bytes == 0; }

// The k-th instruction of the first program that fits.
Instruction& nth(plan::Plan& plan, int k, const std::function<bool(const Instruction&)>& fits) {
  for (Instruction& in : plan.programs[0].instructions) {
    if (fits(in) && k-- == 0) return in;
  }
  FAIL("no such instruction");
  return plan.programs[0].instructions[0];
}

// Nothing waits for it any more.
void drop(plan::Plan& plan, Instruction& dropped) {
  std::vector<Instruction>& list = plan.programs[0].instructions;
  const int32_t at = static_cast<int32_t>(&dropped - list.data());
  const std::vector<int32_t> before = list[static_cast<size_t>(at)].waits;
  list.erase(list.begin() + at);
  for (Instruction& in : list) {
    std::set<int32_t> waits;
    for (int32_t w : in.waits) {
      if (w == at) waits.insert(before.begin(), before.end());
      else waits.insert(w > at ? w - 1 : w);
    }
    in.waits.assign(waits.begin(), waits.end());
  }
}

}  // namespace

TEST_CASE("divided experts give the numbers of one device") {
  const int64_t choices = GENERATE(1, 2);
  const Form form = GENERATE(Form::kPicked, Form::kPadded);
  const Bench bench = bench_of(Network(form, choices, kEven, form == Form::kPadded ? 2 : 0));
  const Result reference = bench.run(bench.strategy("", 13, "clip_norm 0.5"));
  for (const std::string& text :
       {divided(2, 1), divided(2, 3), divided(3, 2), divided(4, 2), divided(2, 3, "a2a_stream \"tokens\"", "zero 1"),
        divided(2, 3, "", "zero 2"), divided(2, 3, "", "zero 3"), divided_beside(2, 2, 2), divided_beside(2, 2, 2, 1),
        divided_beside(2, 2, 3, 2), divided_beside(2, 2, 3, 3), divided_beside(1, 2, 2), divided_beside(2, 1, 2)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 13, "clip_norm 0.5")), reference);
  }
  check_equal(bench.run(bench.strategy(divided(2, 3), 13, "clip_norm 0.5"), 3, true), reference);
}

TEST_CASE("experts need not be a multiple of the devices") {
  const size_t experts = GENERATE(2, 3, 5);
  const Bench bench = bench_of(Network(Form::kPicked, 2, std::vector<double>(experts, 0.0)));
  const Result reference = bench.run(bench.strategy("", 12, "clip_norm 0.5"));
  for (const std::string& text : {divided(2, 2), divided(4, 1), divided_beside(2, 3, 2, 2)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 12, "clip_norm 0.5")), reference);
  }
}

TEST_CASE("divided experts may have no tokens, or all of them") {
  // One expert has all; one has none; a device has none.
  const std::vector<double> favour = GENERATE(std::vector<double>{0, 50, 0, 0}, std::vector<double>{0, 0, -50, 0},
                                              std::vector<double>{50, 50, 0, 0}, std::vector<double>{0, 0, 50, 50});
  const int64_t choices = GENERATE(1, 2);
  const Bench bench = bench_of(Network(Form::kPicked, choices, favour));
  const Result reference = bench.run(bench.strategy("", 11, ""));
  for (const std::string& text : {divided(2, 2), divided(4, 1), pipeline("one_f_one_b", 3)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 11, "")), reference);
  }
}

TEST_CASE("divided experts in pipelines, with split backwards and with recomputation") {
  const Bench bench = bench_of(Network(Form::kPicked, 2, kEven));
  const Result reference = bench.run(bench.strategy("", 16, "clip_norm 0.5"));
  for (const std::string& text :
       {pipeline("one_f_one_b", 4), pipeline("gpipe", 3), pipeline("zb_h1", 4), pipeline("one_f_one_b", 4, 3),
        pipeline("one_f_one_b", 4, 2, "recompute all()\n"), pipeline("zb_h1", 4, 2, "recompute all(stage = 1)\n"),
        divided(2, 2) + "recompute all()\n", divided_beside(2, 2, 2, 1) + "recompute all()\n"}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 16, "clip_norm 0.5")), reference);
  }
  check_equal(bench.run(bench.strategy(pipeline("one_f_one_b", 4), 16, "clip_norm 0.5"), 3, true), reference);
}

TEST_CASE("parameters that experts share stay replicated, and get all rows' gradients once") {
  const Bench bench = bench_of(Network(Form::kScaled, 2, kEven));
  const Result reference = bench.run(bench.strategy("", 13, "clip_norm 0.5"));
  REQUIRE(reference.gradients.count("layers.1.scale") == 1);
  for (const std::string& text : {divided(2, 2), divided(4, 1, "", "zero 2"), divided_beside(2, 2, 2), divided(2, 2) + "recompute all()\n"}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 13, "clip_norm 0.5")), reference);
  }
}

TEST_CASE("divided experts may be frozen, in two places, or on fewer devices than others") {
  const Bench bench = bench_of(Network(Form::kPicked, 2, kEven));
  const std::string frozen = "freeze param \"layers.1.up\"\n";
  const Result fixed = bench.run(bench.strategy(frozen, 12, "clip_norm 0.5"));
  for (const std::string& text : {divided(2, 2), divided(2, 1, "", "zero 3"), divided_beside(2, 2, 1, 3)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text + frozen, 12, "clip_norm 0.5")), fixed);
  }
  const std::string two_places =
      "mesh dev[pp = 2, ep = 2]\nsplit all() into 4 as mb\nplace all(mb = 0..2) on dev[pp = 0]\nplace all(mb = 2..4) on dev[pp = 1]\n"
      "replicate all() over ep zero 1\nshard all() over ep as experts\n";
  // The stage with the experts has half as many devices as the one before it.
  const std::string unequal =
      "mesh dev[a = 2, b = 2, ep = 2]\ntag stage = 0 where path \"layers.0.**\"\ntag stage = 1 where not path \"layers.0.**\"\n"
      "place all(stage = 0) on dev[a = 0]\nplace all(stage = 1) on dev[a = 1, b = 0]\nreplicate all() over b zero 2\n"
      "replicate all() over ep\nshard all(stage = 1) over ep as experts\nsplit all() into 2 as mb\n";
  const Result reference = bench.run(bench.strategy("", 13, "clip_norm 0.5"));
  for (const std::string& text : {two_places, unequal}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 13, "clip_norm 0.5")), reference);
  }
}

TEST_CASE("each device has its experts only, and nothing sums what they have apart") {
  const Bench bench = bench_of(Network(Form::kPicked, 2, kEven));
  const plan::Plan plan = bench.compile(bench.strategy(divided(2, 2), 8, ""));
  REQUIRE(plan.programs.size() == 1);
  const plan::Program& program = plan.programs[0];
  size_t divided_params = 0;
  for (const plan::ParamHome& home : program.params) {
    const plan::Param& param = plan.params[static_cast<size_t>(home.param)];
    const bool expert = param.name == "layers.1.up" || param.name == "layers.1.down";
    CHECK((home.segment >= 0) == expert);
    if (!expert) continue;
    divided_params++;
    const int64_t half = kExperts / 2 * kWidth * kHidden;
    CHECK(param.shape[0] == kExperts);
    CHECK(program.buffers[static_cast<size_t>(home.buffer)].bytes == (half + 15) / 16 * 16 * 4);
    for (int64_t rank : {0, 1}) {
      const plan::Segment& segment = plan.ranks[static_cast<size_t>(rank)].segments[static_cast<size_t>(home.segment)];
      CHECK(segment.start == rank * half);
      CHECK(segment.count == half);
    }
  }
  CHECK(divided_params == 2);
  // Per microbatch the counts, rows there and back, and their gradients.
  CHECK(count(program, plan::Opcode::kAllToAll) == 2 * 5);
  CHECK(count(program, plan::Opcode::kWaitHost) == 2);
  for (const plan::Instruction& in : program.instructions) {
    if (in.opcode != plan::Opcode::kAllReduce || in.tensor.find("grads") == std::string::npos) continue;
    CHECK(in.ranges[0].fixed < 4 * kExperts * kWidth * kHidden * 2);  // without the experts
  }
  // With copies of the experts, each is summed over those that have it.
  const plan::Plan copies = bench.compile(bench.strategy(divided_beside(2, 2, 1), 8, ""));
  std::set<std::vector<int32_t>> groups;
  for (const plan::Group& group : copies.groups) groups.insert(group.ranks);
  CHECK(groups == std::set<std::vector<int32_t>>{{0, 1, 2, 3}, {0, 1}, {2, 3}, {0, 2}, {1, 3}});
}

TEST_CASE("a recomputed forward sends nothing again") {
  const Bench bench = bench_of(Network(Form::kPicked, 2, kEven));
  const plan::Plan plan = bench.compile(bench.strategy(divided(2, 1) + "recompute all()\n", 8, ""));
  CHECK(count(plan.programs[0], plan::Opcode::kAllToAll) == 5);
}

TEST_CASE("in an overlap group one member computes while the rows of the other travel") {
  const Bench bench = bench_of(Network(Form::kPicked, 2, kEven));
  const std::string text = divided(2, 3) + "order [F(mb = 0), F(mb = 1) | B(mb = 0), F(mb = 2) | B(mb = 1), B(mb = 2)]\n";
  check_equal(bench.run(bench.strategy(text, 13, "clip_norm 0.5")), bench.run(bench.strategy("", 13, "clip_norm 0.5")));
  CHECK(bench.messages(bench.strategy(text, 13, "")).find("W0502") == std::string::npos);
  std::string order;
  const plan::Plan plan = bench.compile(bench.strategy(text, 13, ""));
  for (const plan::Instruction& in : plan.programs[0].instructions) {
    if (in.opcode != plan::Opcode::kCompute || in.tensor[0] == 'c') continue;
    const std::string next = fmt::format("{}{} ", in.tensor[0], in.microbatch);
    if (!order.ends_with(next)) order += next;
  }
  // Each of the three parts of a forward, before, at and after the experts, runs beside one of the backward.
  CHECK(order == "F0 B0 F1 B0 F1 B0 F1 B1 F2 B1 F2 B1 F2 B2 ");
}

TEST_CASE("with a largest load the room is smaller, and a step that exceeds it fails") {
  const std::string limited = divided(2, 2, "max_load 1.5");
  const Bench even = bench_of(Network(Form::kPicked, 2, kEven));
  check_equal(even.run(even.strategy(divided(2, 2, "max_load 2"), 12, "")), even.run(even.strategy("", 12, "")));
  CHECK(even.compile(even.strategy(limited, 12, "")).programs[0].arena_bytes <
        even.compile(even.strategy(divided(2, 2), 12, "")).programs[0].arena_bytes);
  const Bench crowded = bench_of(Network(Form::kPicked, 2, {50, 50, 0, 0}));
  const std::string error = crowded.run(crowded.strategy(limited, 12, "")).error;
  INFO(error);
  // Of two devices that send 24 rows each, one gets all.
  CHECK(error.find("48 rows come to this rank, the plan has room for 40; the counts are ") != std::string::npos);
  CHECK(error.find("layers.1") != std::string::npos);
}

TEST_CASE("what has no experts, or experts that cannot be divided, is refused") {
  const Bench bench = bench_of(Network(Form::kPicked, 2, kEven));
  const auto refused = [&](const std::string& text, const std::string& code, const std::string& what) {
    const std::string messages = bench.messages(bench.strategy(text, 12, ""));
    INFO(text << messages);
    CHECK(messages.find("error[" + code + "]") != std::string::npos);
    CHECK(messages.find(what) != std::string::npos);
  };
  const std::string stages =
      "mesh dev[pp = 2, ep = 2]\ntag stage = 0 where path \"layers.0.**\"\ntag stage = 1 where not path \"layers.0.**\"\n"
      "for s in 0..2 { place all(stage = s) on dev[pp = s] }\nreplicate all() over ep\n";
  refused(stages + "shard all(stage = 0) over ep as experts\n", "E0519", "experts are at `layers.1");
  refused(stages + "shard all() over pp as experts\n", "E0520", "one coordinate of axis `pp`");
  refused(divided(2, 1) + "shard all() over dp as experts\n", "E0520", "divided twice");
  const std::string inside =
      "mesh dev[pp = 2, ep = 2]\ntag stage = 0 where path \"layers.0.**\" or path \"layers.1.gate\" or path \"layers.1.up\"\n"
      "tag stage = 1 where not (path \"layers.0.**\" or path \"layers.1.gate\" or path \"layers.1.up\")\n"
      "for s in 0..2 { place all(stage = s) on dev[pp = s] }\nreplicate all() over ep\nshard all() over ep as experts\n";
  refused(inside, "E0520", "cut in two");
  const Bench hidden = bench_of(Network(Form::kPicked, 2, kEven, 0, true));
  const std::string messages = hidden.messages(hidden.strategy(divided(2, 1), 12, ""));
  INFO(messages);
  CHECK(messages.find("error[E0519]") != std::string::npos);
  CHECK(messages.find("none in a form that is recognised") != std::string::npos);
}

TEST_CASE("a plan that exchanges or divides wrongly is not proved") {
  const Bench bench = bench_of(Network(Form::kPicked, 2, kEven));
  const plan::Plan right = bench.compile(bench.strategy(divided_beside(2, 2, 2), 16, ""));
  REQUIRE(verify::verify(right).empty());
  REQUIRE(right.programs.size() == 1);
  const auto is_wait = [](const Instruction& in) { return in.opcode == Opcode::kWaitHost; };
  // Of the parameters in segments.
  const auto of_experts = [&](Opcode opcode) {
    return [&right, opcode](const Instruction& in) {
      if (in.opcode != opcode || in.ranges.empty()) return false;
      for (const plan::ParamHome& home : right.programs[0].params) {
        const std::string bucket = right.programs[0].buffers[static_cast<size_t>(home.buffer)].name;
        if (home.segment >= 0 && in.tensor == bucket.substr(0, bucket.find(' ')) + " grads") return true;
      }
      return false;
    };
  };
  struct Fault {
    const char* what;
    std::function<void(plan::Plan&)> make;
  };
  const std::vector<Fault> faults = {
      {"counts are not exchanged", [&](plan::Plan& p) { drop(p, nth(p, 0, is_count)); }},
      {"the host does not read the counts", [&](plan::Plan& p) { drop(p, nth(p, 1, is_wait)); }},
      {"the host lets more rows pass than there is room for", [&](plan::Plan& p) { nth(p, 0, is_wait).limit++; }},
      {"rows do not come", [&](plan::Plan& p) { drop(p, nth(p, 0, is_exchange)); }},
      {"rows do not come back", [&](plan::Plan& p) { drop(p, nth(p, 1, is_exchange)); }},
      {"gradients of rows do not come back", [&](plan::Plan& p) { drop(p, nth(p, 3, is_exchange)); }},
      {"counts sent and received are swapped",
       [&](plan::Plan& p) { std::swap(nth(p, 0, is_exchange).ranges[2], nth(p, 0, is_exchange).ranges[3]); }},
      {"one table of counts is used twice", [&](plan::Plan& p) { nth(p, 2, is_exchange).ranges[2] = nth(p, 2, is_exchange).ranges[3]; }},
      {"counts of another microbatch",
       [&](plan::Plan& p) {
         Instruction& other = nth(p, 0, [&](const Instruction& in) { return is_exchange(in) && in.microbatch == 1; });
         other.ranges[2] = nth(p, 0, is_exchange).ranges[2];
         other.ranges[3] = nth(p, 0, is_exchange).ranges[3];
       }},
      {"rows of another size", [&](plan::Plan& p) { nth(p, 0, is_exchange).row_bytes /= 2; }},
      {"rows go to those that share the experts",
       [&](plan::Plan& p) { nth(p, 0, is_exchange).group = nth(p, 0, of_experts(Opcode::kAllReduce)).group; }},
      {"the gradients of experts are not reduced", [&](plan::Plan& p) { drop(p, nth(p, 0, of_experts(Opcode::kAllReduce))); }},
      {"they are reduced over other experts", [&](plan::Plan& p) { nth(p, 0, of_experts(Opcode::kAllReduce)).group = nth(p, 0, is_exchange).group; }},
      {"the norm counts them as if everybody had them", [&](plan::Plan& p) { nth(p, 0, of_experts(Opcode::kNorm)).scale /= 2; }},
      {"two devices have each other's experts",
       [&](plan::Plan& p) {
         for (size_t rank = 0; rank < 4; rank += 2) std::swap(p.ranks[rank].segments, p.ranks[rank + 1].segments);
       }},
      {"nobody has the second half",
       [&](plan::Plan& p) {
         for (plan::RankEntry& rank : p.ranks) rank.segments = p.ranks[0].segments;
       }},
  };
  for (const Fault& fault : faults) {
    plan::Plan wrong = right;
    fault.make(wrong);
    INFO(fault.what);
    CHECK_FALSE(wrong == right);
    CHECK_FALSE(verify::verify(wrong).empty());
  }
}
