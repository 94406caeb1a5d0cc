// The executor of a rank: binds its program once, then runs steps. Every stream of the program has a thread that walks
// the stream's instructions in order; a wait for another stream is a sleep on that stream's counter.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plan/plan.h"
#include "runtime/bind.h"
#include "runtime/data.h"
#include "runtime/optimizer.h"
#include "runtime/stream_counter.h"
#include "runtime/trace.h"
#include "runtime/transport.h"
#include "support/error.h"

namespace piper::runtime {

struct ExecutorOptions {
  int threads = 1;                          // OpenMP threads of compute streams
  bool random_delays = false;               // sleep before instructions, seeded by the rank (tests)
  std::atomic<int64_t>* progress = nullptr;  // counts completed instructions
};

class Executor {
 public:
  // `plan`, `transport` (whose groups are set here) and `data` must outlive the executor.
  static support::Expected<std::unique_ptr<Executor>> make(const plan::Plan& plan, Transport& transport,
                                                           const Data& data, const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs one step to its end. After an error, which names the instruction, the job is over: the transport is aborted
  // and every later step fails. `trace`, when given, gets the times of all instructions.
  support::Expected<void> run_step(const StepContext& context, StepTrace* trace = nullptr);

  std::byte* buffer(int32_t index) const { return bound_.buffer(program_, index); }
  // The statistics that the last step left; nullptr when the program keeps none.
  const double* stats() const;
  const plan::Program& program() const { return program_; }
  int rank() const { return transport_.rank(); }
  int64_t bytes_sent_per_step() const { return bound_.bytes_sent; }

 private:
  Executor(const plan::Plan& plan, Transport& transport, const Data& data, const ExecutorOptions& options,
           BoundProgram bound);
  void serve_stream(size_t stream);
  void walk_stream(size_t stream);
  void wait_for(const BoundInstruction& instruction);
  support::Expected<void> execute(const BoundInstruction& instruction, const BoundStream& stream);
  support::Expected<void> communicate(const BoundInstruction& instruction);
  void compute(const BoundInstruction& instruction, const BoundStream& stream);
  void add_norm(const BoundInstruction& instruction);
  support::Expected<void> update(const BoundInstruction& instruction);
  void delay(int32_t index) const;
  void fail(int32_t instruction, const support::Error& error);

  const plan::Plan& plan_;
  Transport& transport_;
  const Data& data_;
  const ExecutorOptions options_;
  const plan::Program& program_;
  BoundProgram bound_;
  int spins_ = 0;

  // Written by the main thread while all streams sleep; `round_` publishes them.
  StepContext context_;
  StepTrace* trace_ = nullptr;

  std::vector<StreamCounter> counters_;
  alignas(64) std::atomic<uint32_t> round_{0};
  alignas(64) std::atomic<uint32_t> running_{0};  // streams still at work in this round
  std::atomic<bool> quit_{false};
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;  // taken on failure only
  std::optional<support::Error> error_;
  std::vector<std::thread> threads_;
};

}  // namespace piper::runtime
