#include "runtime/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "runtime/job.h"

extern char** environ;

namespace piper::runtime {

namespace {

struct Pipe {
  Fd reader, writer;
};

// Both ends close on exec, and lie above the numbers that children use, so that none is overwritten by a dup2.
support::Expected<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return support::user_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)),
                               "the limit of open files may be too low, see `ulimit -n`");
  }
  Pipe pipe;
  Fd low[2] = {Fd(fds[0]), Fd(fds[1])};
  pipe.reader = Fd(::fcntl(low[0].get(), F_DUPFD_CLOEXEC, 10));
  pipe.writer = Fd(::fcntl(low[1].get(), F_DUPFD_CLOEXEC, 10));
  if (!pipe.reader.open() || !pipe.writer.open()) {
    return support::user_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)),
                               "the limit of open files may be too low, see `ulimit -n`");
  }
  return pipe;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> merged = changes;
  for (char** variable = environ; *variable != nullptr; variable++) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& change : changes) replaced |= change.starts_with(name);
    if (!replaced) merged.emplace_back(text);
  }
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (std::string& s : strings) list.push_back(s.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

support::Expected<ChildProcess> start_child(const std::vector<std::string>& arguments,
                                            const std::vector<std::string>& environment) {
  Pipe pipes[4];  // by the child's descriptor: standard input, output, error, control
  for (Pipe& pipe : pipes) {
    auto made = make_pipe();
    if (!made) return tl::make_unexpected(made.error());
    pipe = std::move(*made);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd = 0; fd < 4; fd++) {
    const Fd& end = fd == 0 ? pipes[fd].reader : pipes[fd].writer;
    posix_spawn_file_actions_adddup2(&actions, end.get(), fd);
  }
  static_assert(kControlFd == 3);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: Ctrl-C in the terminal reaches the launcher alone, which then ends everybody in order.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t defaults, none;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &none);

  std::vector<std::string> argv = {"piper"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> envp = merged_environment(environment);
  ChildProcess child;
  const int failed = ::posix_spawn(&child.pid, "/proc/self/exe", &actions, &attributes, pointers(argv).data(),
                                   pointers(envp).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return support::user_error(fmt::format("cannot start a worker: {}", std::strerror(failed)));

  child.input = std::move(pipes[0].writer);
  child.output = std::move(pipes[1].reader);
  child.error = std::move(pipes[2].reader);
  child.control = std::move(pipes[3].reader);
  for (const Fd* fd : {&child.output, &child.error, &child.control}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  return child;
}

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t take = std::min(end == std::string_view::npos ? bytes.size() : end, max_line_ - rest_.size());
    rest_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    const bool newline = !bytes.empty() && bytes[0] == '\n';
    if (newline) bytes.remove_prefix(1);
    if (newline || rest_.size() == max_line_) {
      sink(rest_);
      rest_.clear();
    }
  }
}

void LineSplitter::flush(const Sink& sink) {
  if (!rest_.empty()) sink(rest_);
  rest_.clear();
}

bool read_available(int fd, const std::function<void(std::string_view)>& sink) {
  char buffer[65536];
  while (true) {
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got > 0) {
      sink(std::string_view(buffer, static_cast<size_t>(got)));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
}

// ---- Signals ----

namespace {

// A handler can only reach what is global.
std::atomic<int> g_signal_count{0};
std::atomic<int> g_last_signal{0};
std::atomic<int> g_wake_writer{-1};
int g_wake_reader = -1;

void on_signal(int signal) {
  const int saved = errno;
  g_last_signal = signal;
  g_signal_count++;
  const char byte = 0;
  [[maybe_unused]] ssize_t written = ::write(g_wake_writer, &byte, 1);
  errno = saved;
}

}  // namespace

struct SignalGuard::Saved {
  int signal = 0;
  struct sigaction action = {};
};

SignalGuard::SignalGuard() {
  int fds[2] = {-1, -1};
  PIPER_CHECK(::pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0, "cannot make a pipe for signals");
  g_signal_count = 0;
  g_last_signal = 0;
  g_wake_reader = fds[0];
  g_wake_writer = fds[1];
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    Saved saved;
    saved.signal = signal;
    ::sigaction(signal, nullptr, &saved.action);
    if (saved.action.sa_handler == SIG_IGN) continue;
    struct sigaction ours = {};
    ours.sa_handler = signal == SIGPIPE ? SIG_IGN : on_signal;
    ours.sa_flags = SA_RESTART;
    ::sigaction(signal, &ours, nullptr);
    saved_.push_back(saved);
  }
}

SignalGuard::~SignalGuard() {
  for (const Saved& saved : saved_) ::sigaction(saved.signal, &saved.action, nullptr);
  ::close(g_wake_writer.exchange(-1));
  ::close(g_wake_reader);
}

int SignalGuard::count() const { return g_signal_count; }
int SignalGuard::last_signal() const { return g_last_signal; }
int SignalGuard::wake_fd() const { return g_wake_reader; }

}  // namespace piper::runtime
