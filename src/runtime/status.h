// What a person sees of a running job: the ranks' output with their number before each line, and how training goes, as
// one line that is drawn again and again on a terminal, as plain lines now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/worker.h"

namespace piper::runtime {

struct StatusOptions {
  int world_size = 1;
  int64_t steps = 1;
  bool quiet = false;     // nothing about steps
  bool terminal = false;  // standard error is one
  bool color = false;
  // For standard error and standard output, from the environment: NO_COLOR, TERM.
  static StatusOptions detect(int world_size, int64_t steps, bool quiet);
};

// "step 3/100  loss 2.3026  norm 1.21  512 samples/s  32 k tokens/s  left 1:05"
std::string step_text(const StepReport& report, int64_t steps, double seconds_per_step);
// "1:05", "2:03:10"
std::string clock_text(double seconds);

class Status {
 public:
  explicit Status(const StatusOptions& options) : options_(options) {}
  ~Status() { clear(); }

  // A line that a rank wrote, to standard output or standard error.
  void rank_line(int rank, bool is_error, const std::string& line);
  void step(const StepReport& report);
  // A line of the launcher's own, on standard error.
  void note(const std::string& line);
  // Takes the status line away.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  StatusOptions options_;
  std::string shown_;  // the status line, "" when there is none
  bool drawn_ = false;
  double seconds_per_step_ = 0;
  Clock::time_point last_;  // when a status line or plain line was last written
  bool any_ = false;
};

}  // namespace piper::runtime
