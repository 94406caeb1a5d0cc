// Real processes: results, faults of every kind, signals, and nothing left behind. This binary is its own worker.
#define CATCH_CONFIG_RUNNER
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "plan/plan_io.h"
#include "runtime/child_process.h"
#include "runtime/status.h"
#include "runtime/store.h"
#include "runtime/supervisor.h"
#include "tests/runtime/fake_job.h"

namespace piper::runtime {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// A folder with a plan, gone when the test is.
class PlanFolder {
 public:
  explicit PlanFolder(const plan::Plan& plan) {
    path_ = (fs::temp_directory_path() / ("piper-launch-test-" + random_token().substr(0, 12))).string();
    REQUIRE(plan::write_plan(plan, path_));
  }
  ~PlanFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Processes whose parent is `parent`, zombies too.
std::set<int> children_of(int parent) {
  std::set<int> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    const size_t end = text.rfind(')');
    char state = 0;
    int ppid = 0;
    if (end == std::string::npos || std::sscanf(text.c_str() + end + 1, " %c %d", &state, &ppid) != 2) continue;
    if (ppid == parent) children.insert(std::stoi(text));
  }
  return children;
}

size_t open_files() {
  const auto folder = fs::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(fs::begin(folder), fs::end(folder)));
}

LaunchOptions options_for(const std::string& folder, int64_t steps, const std::string& fault = "") {
  LaunchOptions options;
  options.plan_folder = folder;
  options.run.steps = steps;
  options.run.threads = 0;
  options.run.data = fault;
  options.quiet = true;
  return options;
}

Expected<RunSummary> launch_fake(int world_size, int64_t steps, const std::string& fault = "", double timeout = 60) {
  const plan::Plan plan = fake_plan(world_size);
  PlanFolder folder(plan);
  LaunchOptions options = options_for(folder.path(), steps, fault);
  options.timeout_seconds = timeout;
  return launch_job(plan, options, fake_functions());
}

// A launcher in a process of its own, with everything it writes.
struct Launcher {
  ChildProcess process;
  std::string output;  // both streams

  explicit Launcher(const std::vector<std::string>& arguments) {
    auto started = start_child(arguments, {});
    REQUIRE(started);
    process = std::move(*started);
  }
  void read() {
    auto sink = [&](std::string_view bytes) { output += bytes; };
    read_available(process.output.get(), sink);
    read_available(process.error.get(), sink);
  }
  bool wait_for(const std::string& text, double seconds) {
    for (const auto start = Clock::now(); seconds_since(start) < seconds; ::usleep(5000)) {
      read();
      if (output.find(text) != std::string::npos) return true;
    }
    return false;
  }
  // The wait status, or -1 when it did not end in time.
  int wait_end(double seconds) {
    int status = 0;
    for (const auto start = Clock::now(); seconds_since(start) < seconds; ::usleep(5000)) {
      read();
      if (::waitpid(process.pid, &status, WNOHANG) == process.pid) {
        read();
        return status;
      }
    }
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    return -1;
  }
};

bool all_gone(const std::set<int>& pids, double seconds) {
  for (const auto start = Clock::now(); seconds_since(start) < seconds; ::usleep(5000)) {
    bool any = false;
    for (int pid : pids) any |= ::kill(pid, 0) == 0;
    if (!any) return true;
  }
  return false;
}

// The job of a launcher process: "launch FOLDER WORLD STEPS FAULT".
int launcher_main(char** argv) {
  const plan::Plan plan = fake_plan(std::atoi(argv[3]));
  LaunchOptions options = options_for(argv[2], std::atoi(argv[4]), argv[5]);
  options.quiet = false;
  auto summary = launch_job(plan, options, fake_functions());
  if (summary) {
    std::printf("done\n");
    return 0;
  }
  std::printf("error: %s\n", summary.error().message.c_str());
  std::fflush(stdout);
  return stop_signal() != 0 ? 128 + stop_signal() : static_cast<int>(summary.error().kind);
}

struct FaultCase {
  std::string fault;
  int world_size;
  std::string message;  // is in the error
  std::string help;
  support::ErrorKind kind;
  double timeout;  // of the watchdog
};

}  // namespace

TEST_CASE("processes: a job of four ranks runs to its end", "[launch]") {
  const size_t files = open_files();
  auto summary = launch_fake(4, 3);
  REQUIRE(summary);
  CHECK(summary->losses == std::vector<double>{10, 20, 30});
  CHECK(summary->instructions == 4);
  CHECK(children_of(::getpid()).empty());
  CHECK(open_files() == files);
  CHECK(stop_signal() == 0);
}

TEST_CASE("processes: a job of one rank, and a loss that is not a number", "[launch]") {
  auto summary = launch_fake(1, 2, "rank=0,step=1,kind=nan");
  REQUIRE(summary);
  CHECK(summary->losses[0] == 1);
  CHECK(std::isnan(summary->losses[1]));
}

TEST_CASE("threads: the same results without processes", "[launch]") {
  for (bool rendezvous : {false, true}) {
    LaunchOptions options = options_for("", 3);
    options.in_process = true;
    options.rendezvous_sends = rendezvous;
    auto summary = launch_job(fake_plan(4), options, fake_functions());
    REQUIRE(summary);
    CHECK(summary->losses == std::vector<double>{10, 20, 30});
  }
}

TEST_CASE("threads: the first cause, whoever notices", "[launch]") {
  LaunchOptions options = options_for("", 3, "rank=2,step=1,kind=error");
  options.in_process = true;
  auto failed = launch_job(fake_plan(4), options, fake_functions());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "rank 2: disk full");
  CHECK(failed.error().help == "buy a larger one");
  options.run.data = "rank=1,step=2,kind=throw";
  failed = launch_job(fake_plan(4), options, fake_functions());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "rank 1: exception: bad luck");
  CHECK(failed.error().kind == support::ErrorKind::kInternal);
}

TEST_CASE("faults: every other rank ends within 5 s and the first cause is named", "[launch]") {
  using support::ErrorKind;
  const FaultCase cases[] = {
      {"rank=2,step=1,kind=kill", 4, "rank 2 was killed by signal 9 (Killed)", "dmesg", ErrorKind::kUser, 60},
      {"rank=0,step=0,kind=kill", 2, "rank 0 was killed by signal 9 (Killed)", "dmesg", ErrorKind::kUser, 60},
      {"rank=0,step=0,kind=kill", 1, "rank 0 was killed by signal 9 (Killed)", "dmesg", ErrorKind::kUser, 60},
      {"rank=3,step=2,kind=abort", 4, "rank 3 was killed by signal 6 (Aborted)", "", ErrorKind::kInternal, 60},
      {"rank=2,step=1,kind=exit", 4, "rank 2 ended with exit code 3 before the job was done", "", ErrorKind::kUser, 60},
      {"rank=1,step=1,kind=quit", 4, "rank 1 ended with exit code 0 before the job was done", "", ErrorKind::kUser, 60},
      {"rank=2,step=1,kind=check", 4, "rank 2 ended with exit code 70", "", ErrorKind::kInternal, 60},
      {"rank=2,step=1,kind=throw", 4, "rank 2: exception: bad luck", "", ErrorKind::kInternal, 60},
      {"rank=2,step=1,kind=error", 4, "rank 2: disk full", "buy a larger one", ErrorKind::kUser, 60},
      {"rank=0,step=2,kind=error", 4, "rank 0: disk full", "buy a larger one", ErrorKind::kUser, 60},
      {"rank=2,step=1,kind=stop", 4, "rank 2 gives no sign of life", "rank 3: step 1, 2 of 4", ErrorKind::kUser, 2},
      {"rank=1,step=1,kind=late_stop", 3, "rank 1 gives no sign of life", "rank 1: step 1, 3 of 4",
       ErrorKind::kUser, 2},
      {"rank=2,step=1,kind=hang", 4, "rank 2 made no progress for 2.", "rank 2: step 1, 0 of 4 instructions done, "
       "next in order: zero `t0`", ErrorKind::kUser, 2},
      {"rank=1,step=1,kind=deaf", 2, "rank 1 made no progress for 2.", "--timeout", ErrorKind::kUser, 2},
  };
  for (const FaultCase& c : cases) {
    INFO(c.fault);
    const auto start = Clock::now();
    auto failed = launch_fake(c.world_size, 50, c.fault, c.timeout);
    const double limit = c.timeout < 60 ? c.timeout + 5 : 5;
    CHECK(seconds_since(start) < limit);
    CHECK(children_of(::getpid()).empty());
    REQUIRE_FALSE(failed);
    CHECK(failed.error().message.find(c.message) == 0);
    CHECK(failed.error().help.find(c.help) != std::string::npos);
    CHECK(failed.error().kind == c.kind);
  }
}

TEST_CASE("nothing starts when the checks fail", "[launch]") {
  auto failed = launch_fake(2, 1, "missing");
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "no data");
}

TEST_CASE("a rank with another plan is named", "[launch]") {
  PlanFolder folder(fake_plan(2, 1));
  auto failed = launch_job(fake_plan(2, 2), options_for(folder.path(), 1), fake_functions());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message.find(" has another plan (") != std::string::npos);
  CHECK(failed.error().message.find("rank ") == 0);

  failed = launch_job(fake_plan(2), options_for("/nonexistent/plan", 1), fake_functions());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message.find("/nonexistent/plan") != std::string::npos);
}

TEST_CASE("a rank with another build is named", "[launch]") {
  const Identity launcher{1, 2};
  CHECK(check_identity(3, {1, 2}, launcher.to_text()));
  auto failed = check_identity(3, {7, 2}, launcher.to_text());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message ==
        "rank 3 runs another build of piper (0000000000000007) than the launcher (0000000000000001)");
}

TEST_CASE("a port in use is an error before any rank starts", "[launch]") {
  auto taken = StoreServer::start("127.0.0.1", 0, "x");
  REQUIRE(taken);
  const plan::Plan plan = fake_plan(2);
  PlanFolder folder(plan);
  LaunchOptions options = options_for(folder.path(), 1);
  options.port = (*taken)->port();
  auto failed = launch_job(plan, options, fake_functions());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "port " + std::to_string(options.port) + " is in use");
  taken->reset();
  CHECK(launch_job(plan, options, fake_functions()));
}

TEST_CASE("output: every line has its rank, also the last without a newline", "[launch]") {
  PlanFolder folder(fake_plan(3));
  Launcher launcher({"launch", folder.path(), "3", "2", "rank=1,step=0,kind=print"});
  CHECK(launcher.wait_end(20) == 0);
  INFO(launcher.output);
  CHECK(launcher.output.find("[rank 1] hello from ") != std::string::npos);
  CHECK(launcher.output.find("\n[rank 1] no newline\n") != std::string::npos);
  CHECK(launcher.output.find("[rank 1] trouble\n") != std::string::npos);
  CHECK(launcher.output.find("step 1/2  loss 6") != std::string::npos);
  CHECK(launcher.output.find("step 2/2  loss 12") != std::string::npos);
  CHECK(launcher.output.find('\x1b') == std::string::npos);  // not a terminal
}

TEST_CASE("interrupt: the first stops everything", "[launch]") {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    PlanFolder folder(fake_plan(3));
    Launcher launcher({"launch", folder.path(), "3", "1000", "rank=1,step=2,kind=hang"});
    REQUIRE(launcher.wait_for("step 1/", 20));
    const std::set<int> workers = children_of(launcher.process.pid);
    CHECK(workers.size() == 3);
    for (int pid : workers) {  // nothing secret, nothing but the command
      std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
      std::string line;
      std::getline(file, line);
      CHECK(line == std::string("piper\0worker\0", 13));
    }
    ::kill(launcher.process.pid, signal);
    const auto start = Clock::now();
    const int status = launcher.wait_end(10);
    CHECK(seconds_since(start) < 1.5);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + signal);
    CHECK(launcher.output.find("error: stopped by signal " + std::to_string(signal)) != std::string::npos);
    CHECK(all_gone(workers, 0.5));
  }
}

TEST_CASE("interrupt: the second is immediate, even for ranks that ignore the first", "[launch]") {
  PlanFolder folder(fake_plan(2));
  Launcher launcher({"launch", folder.path(), "2", "1000", "rank=1,step=1,kind=deaf"});
  REQUIRE(launcher.wait_for("step 1/", 20));
  ::usleep(100000);
  const std::set<int> workers = children_of(launcher.process.pid);
  ::kill(launcher.process.pid, SIGINT);
  ::usleep(300000);
  CHECK(::waitpid(launcher.process.pid, nullptr, WNOHANG) == 0);
  ::kill(launcher.process.pid, SIGINT);
  const auto start = Clock::now();
  CHECK(launcher.wait_end(10) != -1);
  CHECK(seconds_since(start) < 0.5);
  CHECK(all_gone(workers, 0.5));
}

TEST_CASE("a launcher that is killed leaves no workers", "[launch]") {
  PlanFolder folder(fake_plan(3));
  Launcher launcher({"launch", folder.path(), "3", "1000", "rank=1,step=1,kind=deaf"});
  REQUIRE(launcher.wait_for("step 1/", 20));
  const std::set<int> workers = children_of(launcher.process.pid);
  CHECK(workers.size() == 3);
  ::kill(launcher.process.pid, SIGKILL);
  CHECK(launcher.wait_end(5) != -1);
  CHECK(all_gone(workers, 5));
}

TEST_CASE("a worker without a launcher says so", "[launch]") {
  Launcher worker({"worker"});
  worker.process.input.reset();
  const int status = worker.wait_end(5);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 2);
  CHECK(worker.output.find("settings cannot be read") != std::string::npos);
}

}  // namespace piper::runtime

int main(int argc, char** argv) {
  using namespace piper::runtime;
  if (argc == 2 && std::string(argv[1]) == "worker") return serve_worker(fake_functions());
  if (argc == 6 && std::string(argv[1]) == "launch") return launcher_main(argv);
  return Catch::Session().run(argc, argv);
}
