// Watches the worker processes of a job to their end. When one fails (dies, reports an error, stops giving signs of
// life or making progress) it ends all others and finds out who was first.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/child_process.h"
#include "runtime/job.h"
#include "runtime/status.h"

namespace piper::runtime {

// A reason to end the job.
struct Cause {
  int rank = -1;
  int64_t at_ns = 0;
  bool echo = false;  // a broken connection, as opposed to what broke it
  support::Error error;
};
// The earliest cause that is no echo, else the earliest.
const Cause& first_cause(const std::vector<Cause>& causes);
// "was killed by signal 9 (Killed)", "ended with exit code 3".
std::string end_text(int wait_status);

class Supervisor {
 public:
  Supervisor(const plan::Plan& plan, const LaunchOptions& options, Status& status, SignalGuard& signals);
  // Kills and reaps whatever still runs.
  ~Supervisor();

  // Takes over a worker; ranks come in ascending order.
  void add(ChildProcess child);
  // Until all have ended; rank 0's summary, or the first cause.
  Expected<RunSummary> run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    ChildProcess process;
    LineSplitter out{1 << 16}, err{1 << 16}, control{1 << 26};
    bool reaped = false;
    bool reported = false;  // its own error
    std::optional<RunSummary> done;
    Phase phase = Phase::kStart;
    int64_t instructions = 0;
    Clock::time_point heard;       // last sign of life
    Clock::time_point progressed;  // last instruction completed
  };
  enum class Stage { kRunning, kSettling, kQuitting, kStopping };

  void wait_for_events();
  void read_from(int rank);
  void take_message(int rank, const std::string& line);
  void reap();
  void judge_end(int rank, int wait_status);
  void check_progress();
  void blame_for_hang(double seconds);
  void take_signals();
  void advance();
  void stop(bool at_once);
  void signal_all(int signal);
  bool all_reaped() const;
  bool all_done() const;
  std::string positions() const;
  Expected<RunSummary> result();

  const plan::Plan& plan_;
  const LaunchOptions& options_;
  Status& status_;
  SignalGuard& signals_;
  std::vector<Worker> workers_;
  std::vector<Cause> causes_;
  Stage stage_ = Stage::kRunning;
  Clock::time_point deadline_;  // of the stage
  bool killed_ = false;
  bool last_step_ = false;  // rank 0 has finished it; what follows is saving
  int signals_seen_ = 0;
};

}  // namespace piper::runtime
