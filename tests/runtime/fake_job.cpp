#include "tests/runtime/fake_job.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <thread>

namespace piper::runtime {

namespace {

struct Fault {
  int rank = -1, step = -1;
  std::string kind;
};

Fault parse_fault(const std::string& text) {
  Fault fault;
  char kind[32] = "";
  if (std::sscanf(text.c_str(), "rank=%d,step=%d,kind=%31s", &fault.rank, &fault.step, kind) == 3) fault.kind = kind;
  return fault;
}

[[noreturn]] void hang() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Returns an error for the kinds that end a run in order; the others do not return.
Expected<void> go_wrong(const std::string& kind, int rank) {
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "abort") ::raise(SIGABRT);
  if (kind == "stop") ::raise(SIGSTOP);
  if (kind == "exit") ::_exit(3);
  if (kind == "quit") ::_exit(0);
  if (kind == "check") PIPER_CHECK(rank < 0, "a broken invariant");
  if (kind == "throw") throw std::runtime_error("bad luck");
  if (kind == "error") return support::user_error("disk full", "buy a larger one");
  if (kind == "deaf") ::signal(SIGTERM, SIG_IGN);
  if (kind == "deaf" || kind == "hang") hang();
  if (kind == "print") {
    std::printf("hello from %d\nno newline", ::getpid());
    std::fprintf(stderr, "trouble\n");
  }
  return {};
}

Expected<RunSummary> fake_run(const plan::Plan& plan, Transport& transport, const RunOptions& options,
                              const StepCallback& on_step, std::atomic<int64_t>* progress) {
  const Fault fault = parse_fault(options.data);
  std::vector<std::vector<int32_t>> groups;
  for (const auto& group : plan.groups) groups.push_back(group.ranks);
  if (auto set = transport.set_groups(groups); !set) return tl::make_unexpected(set.error());
  RunSummary summary;
  for (int64_t step = 0; step < options.steps; step++) {
    if (step == fault.step && transport.rank() == fault.rank) {
      if (fault.kind == "late_stop") {
        *progress += 3;
        std::this_thread::sleep_for(std::chrono::milliseconds(600));  // for the launcher to hear of it
        ::raise(SIGSTOP);
      }
      if (auto result = go_wrong(fault.kind, fault.rank); !result) return tl::make_unexpected(result.error());
    }
    double loss = static_cast<double>((transport.rank() + 1) * (step + 1));
    if (fault.kind == "nan" && step == fault.step) loss = std::numeric_limits<double>::quiet_NaN();
    *progress += 2;
    if (auto sum = transport.all_reduce(0, 0, &loss, 1, ir::DType::kF64); !sum) return tl::make_unexpected(sum.error());
    if (auto met = transport.barrier(); !met) return tl::make_unexpected(met.error());
    *progress += 2;
    summary.losses.push_back(loss);
    summary.grad_norms.push_back(0);
    StepReport report;
    report.step = step;
    report.loss = loss;
    report.seconds = 1e-3;
    report.samples = 8;
    if (transport.rank() == 0 && on_step) on_step(report);
  }
  summary.instructions = 4;
  return summary;
}

}  // namespace

plan::Plan fake_plan(int world_size, uint64_t seed) {
  plan::Plan plan;
  plan.seed = seed;
  plan.mesh = {{"dp", world_size}};
  plan::Program program;
  program.name = "all";
  program.streams.push_back({"compute", plan::StreamKind::kCompute, "compute", false});
  plan::Buffer buffer;
  buffer.name = "stats";
  buffer.kind = plan::BufferKind::kStats;
  buffer.dtype = ir::DType::kF64;
  buffer.bytes = 64;
  buffer.persistent = true;
  program.buffers = {buffer};
  program.stats_buffer = 0;
  program.arena_bytes = 64;
  for (int i = 0; i < 4; i++) {
    plan::Instruction zero;
    zero.opcode = plan::Opcode::kZero;
    zero.tensor = fmt::format("t{}", i);
    zero.ranges = {{0, 0, 64, 0, plan::Access::kWrite}};
    program.instructions.push_back(zero);
  }
  plan.programs = {program};
  plan.groups = {{"world", {}}};
  for (int r = 0; r < world_size; r++) {
    plan.groups[0].ranks.push_back(r);
    plan::RankEntry rank;
    rank.coordinates = {r};
    rank.groups = {0};
    plan.ranks.push_back(rank);
  }
  return plan;
}

JobFunctions fake_functions() {
  auto check = [](const plan::Plan&, const RunOptions& options) -> Expected<void> {
    if (options.data == "missing") return support::user_error("no data");
    return {};
  };
  return {check, fake_run};
}

}  // namespace piper::runtime
