#include "runtime/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

namespace piper::runtime {

namespace {

using support::Error;
using support::ErrorKind;
using std::chrono::milliseconds;

// How long to wait for a cause when only echoes, or when a cause, is known; then everybody is ended within 5 s.
constexpr milliseconds kSettleEcho{1500};
constexpr milliseconds kSettleCause{100};
constexpr milliseconds kGrace{2000};  // between SIGTERM and SIGKILL
constexpr milliseconds kQuitTime{5000};
// Starting and saving have no instructions to count, and move more data than a step.
constexpr double kSlowPhase = 5;

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// State letter of a process, 'T' when it is stopped; '?' when unknown.
char process_state(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');  // the name before it may hold anything
  return end != std::string::npos && end + 2 < text.size() ? text[end + 2] : '?';
}

}  // namespace

const Cause& first_cause(const std::vector<Cause>& causes) {
  return *std::min_element(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) {
    return std::pair(a.echo, a.at_ns) < std::pair(b.echo, b.at_ns);
  });
}

std::string end_text(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(wait_status));
}

Supervisor::Supervisor(const plan::Plan& plan, const LaunchOptions& options, Status& status, SignalGuard& signals)
    : plan_(plan), options_(options), status_(status), signals_(signals) {}

Supervisor::~Supervisor() {
  for (Worker& worker : workers_) {
    if (worker.reaped) continue;
    ::kill(-worker.process.pid, SIGKILL);
    ::waitpid(worker.process.pid, nullptr, 0);
  }
}

void Supervisor::add(ChildProcess child) {
  Worker worker;
  worker.process = std::move(child);
  worker.heard = worker.progressed = Clock::now();
  workers_.push_back(std::move(worker));
}

Expected<RunSummary> Supervisor::run() {
  while (!all_reaped()) {
    wait_for_events();
    for (size_t r = 0; r < workers_.size(); r++) read_from(static_cast<int>(r));
    reap();
    take_signals();
    if (stage_ == Stage::kRunning) check_progress();
    advance();
  }
  status_.clear();
  return result();
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds = {{signals_.wake_fd(), POLLIN, 0}};
  bool silent_end = false;
  for (const Worker& worker : workers_) {
    for (const Fd* fd : {&worker.process.output, &worker.process.error, &worker.process.control}) {
      if (fd->open()) fds.push_back({fd->get(), POLLIN, 0});
    }
    silent_end |= !worker.reaped && !worker.process.control.open();
  }
  // A control pipe closes a moment before its process can be reaped.
  ::poll(fds.data(), fds.size(), silent_end ? 2 : 50);
  if (fds[0].revents != 0) read_available(signals_.wake_fd(), [](std::string_view) {});
}

void Supervisor::read_from(int rank) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  auto drain = [&](Fd& fd, LineSplitter& lines, const LineSplitter::Sink& sink) {
    if (!fd.open()) return;
    if (read_available(fd.get(), [&](std::string_view bytes) { lines.feed(bytes, sink); })) return;
    lines.flush(sink);
    fd.reset();
  };
  drain(worker.process.output, worker.out, [&](const std::string& line) { status_.rank_line(rank, false, line); });
  drain(worker.process.error, worker.err, [&](const std::string& line) { status_.rank_line(rank, true, line); });
  drain(worker.process.control, worker.control, [&](const std::string& line) { take_message(rank, line); });
}

void Supervisor::take_message(int rank, const std::string& line) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  auto message = parse_message(line);
  if (!message) {
    // A line cut short by the end of its writer, whose end is judged on its own.
    return;
  }
  worker.heard = Clock::now();
  if (const auto* progress = std::get_if<ProgressMessage>(&*message)) {
    if (progress->instructions != worker.instructions || progress->phase != worker.phase) {
      worker.progressed = worker.heard;
    }
    worker.instructions = progress->instructions;
    worker.phase = progress->phase;
  } else if (const auto* step = std::get_if<StepReport>(&*message)) {
    worker.progressed = worker.heard;
    last_step_ = step->step + 1 >= options_.run.steps;
    status_.step(*step);
  } else if (const auto* error = std::get_if<ErrorMessage>(&*message)) {
    worker.reported = true;
    causes_.push_back({rank, error->at_ns, error->echo, {error->kind, error->message, error->help}});
  } else if (const auto* done = std::get_if<DoneMessage>(&*message)) {
    worker.done = done->summary;
  }
}

void Supervisor::reap() {
  for (size_t r = 0; r < workers_.size(); r++) {
    Worker& worker = workers_[r];
    if (worker.reaped) continue;
    int wait_status = 0;
    const pid_t pid = ::waitpid(worker.process.pid, &wait_status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) continue;
    worker.reaped = true;
    read_from(static_cast<int>(r));  // its last words
    if (pid > 0) judge_end(static_cast<int>(r), wait_status);
  }
}

void Supervisor::judge_end(int rank, int wait_status) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (worker.reported || stage_ == Stage::kStopping) return;
  if (stage_ == Stage::kQuitting && worker.done && wait_status == 0) return;
  const bool killed = WIFSIGNALED(wait_status);
  const int signal = killed ? WTERMSIG(wait_status) : 0;
  const bool crash = killed ? signal != SIGKILL && signal != SIGTERM && signal != SIGINT && signal != SIGHUP
                            : WEXITSTATUS(wait_status) == static_cast<int>(ErrorKind::kInternal);
  Error error;
  error.kind = crash ? ErrorKind::kInternal : ErrorKind::kUser;
  error.message = end_text(wait_status);
  if (!killed && !crash) error.message += " before the job was done";
  const std::string position =
      worker.phase == Phase::kRun ? position_text(plan_, rank, worker.instructions) : std::string();
  if (!position.empty()) error.help = fmt::format("at its last sign of life: {}", position);
  if (signal == SIGKILL) {
    error.help += fmt::format("{}the kernel kills processes when memory runs out: see `dmesg`",
                              error.help.empty() ? "" : "; ");
  }
  causes_.push_back({rank, monotonic_ns(), false, error});
}

void Supervisor::check_progress() {
  const double limit = options_.timeout_seconds;
  for (const Worker& worker : workers_) {
    if (worker.reaped || worker.done) continue;
    const bool slow = worker.phase != Phase::kRun || worker.instructions == 0 || last_step_;
    if (seconds_since(worker.heard) > limit) return blame_for_hang(seconds_since(worker.heard));
    if (seconds_since(worker.progressed) > limit * (slow ? kSlowPhase : 1)) {
      return blame_for_hang(seconds_since(worker.progressed));
    }
  }
}

// Ranks wait for each other, so all of them stop making progress when one does: it is the one without signs of life, or
// else the one that has done the least of its program.
void Supervisor::blame_for_hang(double seconds) {
  const double silence = std::max(1.0, options_.timeout_seconds / 2);
  auto key = [&](size_t rank) {
    const Worker& worker = workers_[rank];
    const bool silent = seconds_since(worker.heard) > silence;
    const auto& program = plan_.programs[static_cast<size_t>(plan_.ranks[rank].program)];
    const double per_step = std::max<double>(1, static_cast<double>(program.instructions.size()));
    return std::tuple(!silent, static_cast<double>(worker.instructions) / per_step, worker.progressed);
  };
  size_t blamed = workers_.size();
  for (size_t r = 0; r < workers_.size(); r++) {
    if (workers_[r].reaped || workers_[r].done) continue;
    if (blamed == workers_.size() || key(r) < key(blamed)) blamed = r;
  }
  const Worker& worker = workers_[blamed];
  const bool silent = seconds_since(worker.heard) > silence;
  const char state = process_state(worker.process.pid);
  Error error;
  if (silent) {
    error.message = fmt::format("gives no sign of life since {:.1f} s{}", seconds_since(worker.heard),
                                state == 'T' || state == 't' ? ": its process is stopped" : "");
  } else {
    error.message = fmt::format("made no progress for {:.1f} s", seconds);
  }
  error.help = fmt::format("{}\nif a step takes this long, raise `--timeout`", positions());
  causes_.push_back({static_cast<int>(blamed), monotonic_ns(), false, error});
}

std::string Supervisor::positions() const {
  std::string text;
  for (size_t r = 0; r < workers_.size(); r++) {
    const Worker& worker = workers_[r];
    std::string where = worker.phase == Phase::kStart ? "starting" : "finishing";
    if (worker.phase == Phase::kRun) where = position_text(plan_, static_cast<int>(r), worker.instructions);
    if (worker.done) where = "done";
    text += fmt::format("{}rank {}: {} ({:.1f} s ago)", r == 0 ? "" : "\n", r, where, seconds_since(worker.progressed));
  }
  return text;
}

void Supervisor::take_signals() {
  const int count = signals_.count();
  if (count == signals_seen_) return;
  const bool first = signals_seen_ == 0;
  signals_seen_ = count;
  const int signal = signals_.last_signal();
  if (first) {
    status_.note(fmt::format("piper: {}: stopping all ranks; once more to kill them", ::strsignal(signal)));
    Error error{ErrorKind::kUser, fmt::format("stopped by signal {} ({})", signal, ::strsignal(signal)), ""};
    causes_.push_back({-1, monotonic_ns(), false, error});
  }
  stop(!first || count > 1);
}

// Moves on when all are done, a failure is known, or a stage has taken its time.
void Supervisor::advance() {
  const auto now = Clock::now();
  if (stage_ == Stage::kRunning && all_done()) {
    for (Worker& worker : workers_) {
      // A dead worker's pipe is broken, which its end tells us anyway; the pipe is empty, so the write cannot block.
      [[maybe_unused]] ssize_t written = ::write(worker.process.input.get(), kQuitLine, sizeof(kQuitLine) - 1);
    }
    stage_ = Stage::kQuitting;
    deadline_ = now + kQuitTime;
  }
  if (stage_ == Stage::kRunning && !causes_.empty()) {
    stage_ = Stage::kSettling;
    deadline_ = now + kSettleEcho;
  }
  if (stage_ == Stage::kSettling && !first_cause(causes_).echo) deadline_ = std::min(deadline_, now + kSettleCause);
  if (stage_ == Stage::kSettling && now >= deadline_) return stop(false);
  if (stage_ == Stage::kQuitting && (now >= deadline_ || !causes_.empty())) return stop(true);
  if (stage_ == Stage::kStopping && now >= deadline_) stop(true);
}

void Supervisor::stop(bool at_once) {
  if (at_once) {
    if (!killed_) signal_all(SIGKILL);
    killed_ = true;
    deadline_ = Clock::now() + kGrace;
  } else if (stage_ != Stage::kStopping) {
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // a stopped process only sees SIGTERM when it goes on
    deadline_ = Clock::now() + kGrace;
  }
  stage_ = Stage::kStopping;
}

void Supervisor::signal_all(int signal) {
  for (const Worker& worker : workers_) {
    if (!worker.reaped) ::kill(-worker.process.pid, signal);
  }
}

bool Supervisor::all_reaped() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.reaped; });
}
bool Supervisor::all_done() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.done.has_value(); });
}

Expected<RunSummary> Supervisor::result() {
  if (causes_.empty()) {
    if (all_done()) return *workers_[0].done;
    return tl::make_unexpected(Error{ErrorKind::kInternal, "workers ended without a result", ""});
  }
  const Cause& cause = first_cause(causes_);
  Error error = cause.error;
  if (cause.rank >= 0) {
    // Ends and hangs read as a sentence about the rank; reports of a rank are quoted.
    const bool reported = workers_[static_cast<size_t>(cause.rank)].reported;
    error.message = about_rank(cause.rank, error.message, reported ? ": " : " ");
  }
  return tl::make_unexpected(error);
}

}  // namespace piper::runtime
