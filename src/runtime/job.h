// What a launcher and its workers tell each other: settings as one line of JSON on the worker's standard input,
// messages as lines of JSON on its control pipe, and who must be equal to whom through the rendezvous.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "plan/plan.h"
#include "runtime/launch.h"
#include "runtime/transport.h"
#include "runtime/worker.h"
#include "support/error.h"

namespace piper::runtime {

// What ranks run: check_run and run_rank of worker.h, or a test's own.
struct JobFunctions {
  std::function<Expected<void>(const plan::Plan&, const RunOptions&)> check;
  std::function<Expected<RunSummary>(const plan::Plan&, Transport&, const RunOptions&, const StepCallback&,
                                     std::atomic<int64_t>*)>
      run;
};

// launch() and worker_main() with any functions.
Expected<RunSummary> launch_job(const plan::Plan& plan, const LaunchOptions& options, const JobFunctions& functions);
int serve_worker(const JobFunctions& functions);

// The two ways to start ranks; `options.run.threads` is final.
Expected<RunSummary> launch_threads(const plan::Plan& plan, const LaunchOptions& options,
                                    const JobFunctions& functions);
Expected<RunSummary> launch_processes(const plan::Plan& plan, const LaunchOptions& options);

// ---- Settings ----

struct WorkerSettings {
  std::string plan_folder;
  int rank = 0;
  int world_size = 1;
  int launcher_pid = 0;
  std::string store_host;
  int store_port = 0;
  std::string token;
  double timeout_seconds = 60;
  RunOptions run;
};
std::string to_json_line(const WorkerSettings& settings);
Expected<WorkerSettings> parse_settings(const std::string& line);

// The descriptor of a worker's control pipe, and what the launcher writes to its standard input when all are done.
inline constexpr int kControlFd = 3;
inline constexpr char kQuitLine[] = "quit\n";

// ---- Messages of workers ----

enum class Phase { kStart, kRun, kFinish };

// Sent several times a second, as a sign of life.
struct ProgressMessage {
  Phase phase = Phase::kStart;
  int64_t instructions = 0;  // completed since the start
};
struct ErrorMessage {
  int64_t at_ns = 0;  // of the monotonic clock, which all processes of a host share
  support::ErrorKind kind = support::ErrorKind::kUser;
  std::string message;
  std::string help;
  bool echo = false;  // a broken connection: somebody else has the cause
};
struct DoneMessage {
  RunSummary summary;
};
using WorkerMessage = std::variant<ProgressMessage, StepReport, ErrorMessage, DoneMessage>;
std::string to_json_line(const WorkerMessage& message);
Expected<WorkerMessage> parse_message(const std::string& line);

// Nanoseconds of the monotonic clock.
int64_t monotonic_ns();

// ---- Identity ----

// What must be equal on all ranks before the first step.
struct Identity {
  uint64_t build = 0;  // hash of the running executable
  uint64_t plan = 0;   // plan::plan_hash
  std::string to_text() const;
};
inline constexpr char kIdentityKey[] = "job/identity";
Identity identity_of(const plan::Plan& plan);
// Compares a rank's identity with the launcher's; an error names the rank and what differs.
Expected<void> check_identity(int rank, const Identity& own, const std::string& launcher_text);

// `message` as one about a rank, unless it already says so ("rank 3, step 2, #4 recv ...").
std::string about_rank(int rank, const std::string& message, std::string_view separator);

// "step 3, 20 of 56 instructions done; next of them: recv `h1`": where a rank is after so many instructions.
std::string position_text(const plan::Plan& plan, int rank, int64_t instructions);

}  // namespace piper::runtime
