// The threads of the executor and how they wait for each other; execute.cpp has what instructions do.
#include "runtime/executor.h"

#include <omp.h>

#include <chrono>

#include "plan/show.h"
#include "runtime/random.h"

namespace piper::runtime {

using support::Error;
using support::Expected;

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Spinning saves a wake-up, but takes a core from whoever computes when there is none to spare.
int spins_for(const plan::Plan& plan, int threads) {
  constexpr int kSpins = 2000;
  const unsigned wanted = static_cast<unsigned>(plan.world_size()) * static_cast<unsigned>(threads + 1);
  return wanted <= std::thread::hardware_concurrency() ? kSpins : 0;
}

}  // namespace

Expected<std::unique_ptr<Executor>> Executor::make(const plan::Plan& plan, Transport& transport, const Data& data,
                                                   const ExecutorOptions& options) {
  auto bound = bind_program(plan, transport.rank(), options.threads);
  if (!bound) return tl::make_unexpected(bound.error());
  std::vector<std::vector<int32_t>> groups;
  for (const plan::Group& group : plan.groups) groups.push_back(group.ranks);
  if (auto set = transport.set_groups(groups); !set) return tl::make_unexpected(set.error());
  return std::unique_ptr<Executor>(new Executor(plan, transport, data, options, std::move(*bound)));
}

Executor::Executor(const plan::Plan& plan, Transport& transport, const Data& data, const ExecutorOptions& options,
                   BoundProgram bound)
    : plan_(plan),
      transport_(transport),
      data_(data),
      options_(options),
      program_(plan.programs[static_cast<size_t>(plan.ranks[static_cast<size_t>(transport.rank())].program)]),
      bound_(std::move(bound)),
      spins_(spins_for(plan, options.threads)),
      counters_(bound_.streams.size()) {
  for (size_t s = 0; s < bound_.streams.size(); s++) threads_.emplace_back([this, s] { serve_stream(s); });
}

Executor::~Executor() {
  quit_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

const double* Executor::stats() const {
  return program_.stats_buffer < 0 ? nullptr : reinterpret_cast<const double*>(buffer(program_.stats_buffer));
}

Expected<void> Executor::run_step(const StepContext& context, StepTrace* trace) {
  if (!failed_) {
    context_ = context;
    trace_ = trace;
    if (trace) trace->times.assign(program_.instructions.size(), {});
    for (StreamCounter& counter : counters_) counter.reset();
    running_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (uint32_t left = running_.load(std::memory_order_acquire); left > 0;) {
      running_.wait(left, std::memory_order_acquire);
      left = running_.load(std::memory_order_acquire);
    }
  }
  std::lock_guard lock(error_mutex_);
  if (error_) return tl::make_unexpected(*error_);
  return {};
}

void Executor::serve_stream(size_t stream) {
  omp_set_num_threads(bound_.streams[stream].threads);
  for (uint32_t seen = 0;; seen++) {
    round_.wait(seen, std::memory_order_acquire);
    if (quit_) return;
    walk_stream(stream);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void Executor::walk_stream(size_t stream) {
  const BoundStream& bound = bound_.streams[stream];
  for (const BoundInstruction& instruction : bound.instructions) {
    wait_for(instruction);
    if (failed_.load(std::memory_order_acquire)) return;
    if (options_.random_delays) delay(instruction.index);
    const int64_t begin = trace_ ? now_ns() : 0;
    try {
      auto executed = execute(instruction, bound);
      if (!executed) return fail(instruction.index, executed.error());
    } catch (const std::exception& exception) {
      return fail(instruction.index, Error{support::ErrorKind::kUser, exception.what(), ""});
    }
    if (trace_) trace_->times[static_cast<size_t>(instruction.index)] = {begin, now_ns()};
    counters_[stream].advance();
    if (options_.progress) options_.progress->fetch_add(1, std::memory_order_relaxed);
  }
}

void Executor::wait_for(const BoundInstruction& instruction) {
  for (uint32_t w = instruction.first_wait; w < instruction.end_wait; w++) {
    const BoundWait& wait = bound_.waits[w];
    counters_[static_cast<size_t>(wait.stream)].wait_for(wait.target, spins_);
  }
}

void Executor::delay(int32_t index) const {
  constexpr uint64_t kMaxMicroseconds = 300;
  const uint64_t key = static_cast<uint64_t>(transport_.rank()) + 1;
  const uint64_t at = static_cast<uint64_t>(context_.step) * program_.instructions.size() + static_cast<uint64_t>(index);
  std::this_thread::sleep_for(std::chrono::microseconds(random_bits(key, at) % kMaxMicroseconds));
}

void Executor::fail(int32_t instruction, const Error& error) {
  std::string text;
  {
    std::lock_guard lock(error_mutex_);
    if (error_) return;
    const plan::Instruction& in = program_.instructions[static_cast<size_t>(instruction)];
    text = "rank " + std::to_string(transport_.rank()) + ", step " + std::to_string(context_.step) + ", #" +
           std::to_string(instruction) + " " + plan::action_text(plan_, transport_.rank(), in) + ": " + error.message;
    error_ = Error{error.kind, text, error.help};
  }
  failed_.store(true, std::memory_order_release);
  transport_.abort(text);
  for (StreamCounter& counter : counters_) counter.stop();
}

}  // namespace piper::runtime
