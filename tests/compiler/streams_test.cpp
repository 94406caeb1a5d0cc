// Logical streams: what is on one runs one after the other, what is on two may run side by side; in the plan, in its text
// and in a trace.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/compile_model.h"
#include "plan/show.h"
#include "tests/compiler/strategy_file.h"
#include "tests/temp_folder.h"

using namespace piper;
using namespace piper::testing;
using plan::Instruction;
using plan::Opcode;

namespace {

constexpr const char* kModel = "models/gpt_tiny/gpt_tiny.onnx";

// Two halves of the model whose gradients are reduced on these streams.
std::string two_regions(const std::string& first, const std::string& second) {
  return fmt::format(R"(mesh dev[dp = 2]
tag half = 1 where path "**.h.2.**" or path "**.h.3.**"
tag half = 0 where not (path "**.h.2.**" or path "**.h.3.**")
replicate all(half = 0) over dp bucket 64KiB reduce_stream "{}"
replicate all(half = 1) over dp bucket 64KiB reduce_stream "{}"
stream "urgent" priority high
train {{ loss cross_entropy(logits = output "logits", target = input "labels", ignore_index = -100)
         optimizer sgd(lr = 0.1)  batch 8 }}
)", first, second);
}

plan::Plan compile(const StrategyFile& file) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  auto compiled = cli::compile(kModel, file.path(), {}, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(compiled.has_value());
  return std::move(compiled->plan);
}

// The reductions of gradients of rank 0, in order.
std::vector<size_t> reductions(const plan::Program& program) {
  std::vector<size_t> found;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& in = program.instructions[i];
    if (in.opcode == Opcode::kAllReduce && program.buffers[static_cast<size_t>(in.ranges[0].buffer)].kind == plan::BufferKind::kGradient) found.push_back(i);
  }
  return found;
}

// Whether `later` can only start when `earlier` has ended: by its stream, or by waits.
bool ordered(const plan::Program& program, size_t earlier, size_t later) {
  std::set<size_t> after{earlier};
  for (size_t i = earlier + 1; i <= later; ++i) {
    const Instruction& in = program.instructions[i];
    bool follows = std::any_of(in.waits.begin(), in.waits.end(), [&](int32_t w) { return after.count(static_cast<size_t>(w)) > 0; });
    for (size_t a : after) follows = follows || program.instructions[a].stream == in.stream;
    if (follows) after.insert(i);
  }
  return after.count(later) > 0;
}

const plan::Stream& stream_of(const plan::Program& program, size_t i) {
  return program.streams[static_cast<size_t>(program.instructions[i].stream)];
}

struct Event {
  std::string stream;
  double begin, end;
};

// The gradient reductions of each rank in a trace of one step.
std::vector<std::vector<Event>> traced(const StrategyFile& file) {
  const test::TempFolder folder;
  const std::string plan = folder.file("a.plan"), trace = folder.file("trace.json");
  const auto run = [](const std::string& command) { return std::system(command.c_str()); };
  REQUIRE(run(fmt::format("'{}' compile {} '{}' -o '{}' -q", PIPER_BINARY, kModel, file.path().string(), plan)) == 0);
  REQUIRE(run(fmt::format("'{}' launch '{}' --data models/gpt_tiny/data.safetensors --steps 2 --trace '{}' --quiet", PIPER_BINARY, plan, trace)) == 0);
  std::ifstream in(trace);
  const auto json = nlohmann::json::parse(in);
  std::vector<std::vector<Event>> events(2);
  std::map<std::pair<int, int>, std::string> names;
  for (const auto& e : json) {
    if (e["name"] == "thread_name") names[{e["pid"], e["tid"]}] = e["args"]["name"];
  }
  for (const auto& e : json) {
    if (e["ph"] != "X" || e["cat"] != "all_reduce") continue;
    const double begin = e["ts"], duration = e["dur"];
    events[e["pid"].get<size_t>()].push_back({names.at({e["pid"], e["tid"]}), begin, begin + duration});
  }
  return events;
}

}  // namespace

TEST_CASE("two collectives on one stream are serial, on two they are not ordered", "[streams]") {
  const StrategyFile one(two_regions("grad", "grad")), two(two_regions("grad", "urgent"));
  const plan::Plan serial = compile(one), free = compile(two);
  const plan::Program &a = serial.programs[0], &b = free.programs[0];
  const auto on_one = reductions(a), on_two = reductions(b);
  REQUIRE(on_one.size() >= 3);
  for (size_t i = 1; i < on_one.size(); ++i) {
    CHECK(stream_of(a, on_one[i - 1]).name == stream_of(a, on_one[i]).name);
    CHECK(ordered(a, on_one[i - 1], on_one[i]));
  }
  REQUIRE(on_two.size() >= 3);
  std::set<std::string> logical;
  for (size_t i = 0; i < on_two.size(); ++i) {
    logical.insert(stream_of(b, on_two[i]).logical);
    for (size_t k = i + 1; k < on_two.size(); ++k) {
      CHECK(ordered(b, on_two[i], on_two[k]) == (stream_of(b, on_two[i]).name == stream_of(b, on_two[k]).name));
    }
  }
  CHECK(logical == std::set<std::string>{"grad", "urgent"});
}

TEST_CASE("a stream's priority is in the plan and in its text", "[streams]") {
  const StrategyFile file(two_regions("grad", "urgent"));
  const plan::Plan plan = compile(file);
  for (const plan::Stream& stream : plan.programs[0].streams) CHECK(stream.high_priority == (stream.logical == "urgent"));
  const std::string text = plan::show(plan);
  CHECK(text.find("high priority") != std::string::npos);
  CHECK(text.find("high priority") == text.rfind("high priority"));
}

TEST_CASE("a trace shows each stream by its name, and what is on one never overlaps", "[streams]") {
  for (const bool same : {true, false}) {
    INFO((same ? "one stream" : "two streams"));
    const StrategyFile file(two_regions("grad", same ? "grad" : "urgent"));
    for (const std::vector<Event>& rank : traced(file)) {
      std::set<std::string> names;
      for (const Event& e : rank) {
        names.insert(e.stream);
        for (const Event& other : rank) {
          if (&e != &other && e.stream == other.stream) CHECK((e.end <= other.begin || other.end <= e.begin));
        }
      }
      CHECK(std::count_if(names.begin(), names.end(), [](const std::string& n) { return n.find("urgent") != std::string::npos; }) == (same ? 0 : 1));
      CHECK(std::count_if(names.begin(), names.end(), [](const std::string& n) { return n.find("grad") != std::string::npos; }) == 1);
    }
  }
}
