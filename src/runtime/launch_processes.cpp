// Every rank a process of this machine.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "runtime/child_process.h"
#include "runtime/job.h"
#include "runtime/status.h"
#include "runtime/store.h"
#include "runtime/supervisor.h"

namespace piper::runtime {

namespace {

constexpr char kHost[] = "127.0.0.1";

std::atomic<int> g_stop_signal{0};

std::vector<std::string> worker_environment(int threads) {
  std::vector<std::string> environment = {fmt::format("OMP_NUM_THREADS={}", threads)};
  // Threads that spin while they wait take the cores from the ranks that have work.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) environment.emplace_back("OMP_WAIT_POLICY=passive");
  return environment;
}

Expected<void> start_worker(const WorkerSettings& settings, Supervisor& supervisor) {
  auto child = start_child({"worker"}, worker_environment(settings.run.threads));
  if (!child) return tl::make_unexpected(child.error());
  const std::string line = to_json_line(settings);
  // The pipe is empty and holds 64 KiB; paths cannot be that long.
  const ssize_t written = ::write(child->input.get(), line.data(), line.size());
  const bool told = written == static_cast<ssize_t>(line.size());
  supervisor.add(std::move(*child));
  // A worker that died before it could read is the supervisor's to judge.
  if (!told && errno != EPIPE) return support::user_error("a worker cannot be told its settings");
  return {};
}

}  // namespace

Expected<RunSummary> launch_processes(const plan::Plan& plan, const LaunchOptions& options) {
  g_stop_signal = 0;
  const std::string token = random_token();
  auto store = StoreServer::start(kHost, options.port, token);
  if (!store) return tl::make_unexpected(store.error());
  (*store)->set(kIdentityKey, identity_of(plan).to_text());

  SignalGuard signals;
  Status status(StatusOptions::detect(plan.world_size(), options.run.steps, options.quiet));
  Supervisor supervisor(plan, options, status, signals);
  WorkerSettings settings;
  settings.plan_folder = options.plan_folder;
  settings.world_size = plan.world_size();
  settings.launcher_pid = ::getpid();
  settings.store_host = kHost;
  settings.store_port = (*store)->port();
  settings.token = token;
  settings.timeout_seconds = options.timeout_seconds;
  settings.run = options.run;
  for (int rank = 0; rank < plan.world_size(); rank++) {
    settings.rank = rank;
    if (auto started = start_worker(settings, supervisor); !started) return tl::make_unexpected(started.error());
  }
  auto summary = supervisor.run();
  g_stop_signal = signals.last_signal();
  return summary;
}

int stop_signal() { return g_stop_signal; }

}  // namespace piper::runtime
