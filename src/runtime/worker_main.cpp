// A worker process: takes its settings from standard input, finds the other ranks, runs its own and reports on the
// control pipe. Its standard input stays open as long as the launcher lives.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "plan/plan_io.h"
#include "runtime/child_process.h"
#include "runtime/gloo_transport.h"
#include "runtime/job.h"
#include "runtime/loopback_transport.h"
#include "runtime/store.h"

namespace piper::runtime {

namespace {

using support::Error;
using support::ErrorKind;

constexpr int kHeartbeatMs = 200;
constexpr std::chrono::milliseconds kStoreTimeout{30000};

// The worker's end of the control pipe; lines of several threads do not mix.
class Control {
 public:
  void send(const WorkerMessage& message) {
    const std::string line = to_json_line(message);
    std::lock_guard lock(mutex_);
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t n = ::write(kControlFd, line.data() + sent, line.size() - sent);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // the launcher is gone; the lifeline says so too
      sent += static_cast<size_t>(n);
    }
  }
  void send_error(const Error& error, bool echo) {
    send(ErrorMessage{monotonic_ns(), error.kind, error.message, error.help, echo});
  }

 private:
  std::mutex mutex_;
};

// Standard input up to the first newline; not a byte more, what follows is the lifeline's.
std::string read_settings_line() {
  std::string line;
  char c = 0;
  while (::read(STDIN_FILENO, &c, 1) == 1 && c != '\n') line.push_back(c);
  return line;
}

// Sends signs of life, and ends the process when the launcher is gone.
class Lifeline {
 public:
  explicit Lifeline(Control& control) : control_(control), thread_([this] { watch(); }) {}
  // The launcher closes or says quit; both end the thread.
  ~Lifeline() { thread_.join(); }

  std::atomic<int64_t>& instructions() { return instructions_; }
  void set_phase(Phase phase) { phase_ = phase; }

 private:
  void watch() {
    std::string input;
    while (true) {
      pollfd ready = {STDIN_FILENO, POLLIN, 0};
      if (::poll(&ready, 1, kHeartbeatMs) > 0) {
        char buffer[64];
        const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof(buffer));
        // Nobody is left to report to, and destructors could wait for other ranks.
        if (got == 0) ::_exit(1);
        if (got > 0) input.append(buffer, static_cast<size_t>(got));
        if (input == kQuitLine) return;
      }
      control_.send(ProgressMessage{phase_, instructions_});
    }
  }

  Control& control_;
  std::atomic<int64_t> instructions_{0};
  std::atomic<Phase> phase_{Phase::kStart};
  std::thread thread_;
};

// A rank's connection to the others, and whether a failure of it has its cause elsewhere.
struct Connection {
  std::unique_ptr<Transport> transport;
  GlooTransport* gloo = nullptr;
  bool lost_peer() const { return gloo != nullptr && gloo->lost_peer(); }
};

Expected<Connection> connect_ranks(StoreClient& store, const WorkerSettings& settings) {
  Connection connection;
  if (settings.world_size == 1) {
    connection.transport = LoopbackHub::make(1)->connect(0);
    return connection;
  }
  GlooOptions options;
  options.rank = settings.rank;
  options.world_size = settings.world_size;
  options.address = settings.store_host;
  auto gloo = GlooTransport::connect(store, options);
  if (!gloo) return tl::make_unexpected(gloo.error());
  connection.gloo = gloo->get();
  connection.transport = std::move(*gloo);
  return connection;
}

struct Failure {
  Error error;
  bool echo = false;
};

// Everything between the settings and the result. `connection` outlives the call, because other ranks may still read
// from it when this one is done.
tl::expected<RunSummary, Failure> run_worker(const WorkerSettings& settings, const JobFunctions& functions,
                                             Control& control, Lifeline& lifeline, Connection& connection) {
  auto own = [](const Error& error) { return tl::make_unexpected(Failure{error, false}); };
  auto plan = plan::read_plan(settings.plan_folder);
  if (!plan) return own(plan.error());
  auto store = StoreClient::connect(settings.store_host, settings.store_port, settings.token, kStoreTimeout);
  if (!store) return own(store.error());
  auto launcher = (*store)->get(kIdentityKey, kStoreTimeout);
  if (!launcher) return own(launcher.error());
  if (auto same = check_identity(settings.rank, identity_of(*plan), *launcher); !same) return own(same.error());
  if (plan->world_size() != settings.world_size) {
    return own(Error{ErrorKind::kInternal,
                     fmt::format("the plan is for {} ranks, the job has {}", plan->world_size(), settings.world_size),
                     ""});
  }

  auto connected = connect_ranks(**store, settings);
  // Not reached ranks have a reason of their own.
  if (!connected) return tl::make_unexpected(Failure{connected.error(), true});
  connection = std::move(*connected);
  lifeline.set_phase(Phase::kRun);
  auto on_step = [&](const StepReport& report) {
    if (report.step + 1 >= settings.run.steps) lifeline.set_phase(Phase::kFinish);
    control.send(report);
  };
  auto summary = functions.run(*plan, *connection.transport, settings.run, on_step, &lifeline.instructions());
  if (!summary) {
    connection.transport->abort(summary.error().message);
    return tl::make_unexpected(Failure{summary.error(), connection.lost_peer()});
  }
  return *summary;
}

}  // namespace

int serve_worker(const JobFunctions& functions) {
  // Second belts: the lifeline ends us too, but not before the settings are read.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  auto settings = parse_settings(read_settings_line());
  if (!settings) {
    std::fprintf(stderr, "piper: %s\n", settings.error().message.c_str());
    return static_cast<int>(ErrorKind::kUsage);
  }
  if (::getppid() != settings->launcher_pid) return 1;

  Control control;
  Connection connection;       // must outlive the lifeline: it is closed when all ranks are done
  Lifeline lifeline(control);  // its destructor waits for the launcher's word that they are
  tl::expected<RunSummary, Failure> result;
  try {
    result = run_worker(*settings, functions, control, lifeline, connection);
  } catch (const std::exception& e) {
    if (connection.transport) connection.transport->abort(e.what());
    result = tl::make_unexpected(Failure{{ErrorKind::kInternal, fmt::format("exception: {}", e.what()), ""}, false});
  }
  if (!result) {
    control.send_error(result.error().error, result.error().echo);
    std::fflush(stdout);
    // Streams of the executor may still hang in a kernel; the launcher ends everybody now anyway.
    ::_exit(static_cast<int>(result.error().error.kind));
  }
  control.send(DoneMessage{*result});
  return 0;
}

}  // namespace piper::runtime
