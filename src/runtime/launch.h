// Starting the ranks of a job on this machine: as threads of this process, or as processes that find each other through
// a rendezvous; and stopping them all, with the first cause, when one fails.
#pragma once

#include <string>

#include "plan/plan.h"
#include "runtime/worker.h"
#include "support/error.h"

namespace piper::runtime {

struct LaunchOptions {
  RunOptions run;
  std::string plan_folder;     // as workers will open it
  bool in_process = false;     // all ranks as threads over the loopback transport
  bool rendezvous_sends = false;  // loopback: sends block until received, the strictest legal timing (tests)
  double timeout_seconds = 60; // without progress of a rank
  int port = 0;                // of the rendezvous; 0: any free one
  bool quiet = false;          // no status line
};

// Runs the job to its end and returns rank 0's summary.
support::Expected<RunSummary> launch(const plan::Plan& plan, const LaunchOptions& options);

// The signal (SIGINT, SIGTERM, SIGHUP) that ended the last launch() of this process, 0 when none did; for an exit code of
// 128 + signal.
int stop_signal();

// Entry of a worker process (`piper worker`, hidden): reads its settings from standard input. Returns the exit code.
int worker_main();

}  // namespace piper::runtime
