// Every rank a thread of this process, over the loopback transport.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/job.h"
#include "runtime/loopback_transport.h"
#include "runtime/status.h"

namespace piper::runtime {

namespace {

using support::Error;
using support::ErrorKind;
using Clock = std::chrono::steady_clock;

struct Rank {
  std::atomic<int64_t> instructions{0};
  std::optional<Expected<RunSummary>> result;
  int64_t seen = 0;  // of the watchdog
  Clock::time_point progressed = Clock::now();
};

class ThreadJob {
 public:
  ThreadJob(const plan::Plan& plan, const LaunchOptions& options, const JobFunctions& functions)
      : plan_(plan),
        options_(options),
        functions_(functions),
        status_(StatusOptions::detect(plan.world_size(), options.run.steps, options.quiet)),
        ranks_(static_cast<size_t>(plan.world_size())) {
    LoopbackOptions loopback;
    loopback.rendezvous = options.rendezvous_sends;
    if (options.run.deterministic_delays) loopback.delay_seed = plan.seed + 1;
    hub_ = LoopbackHub::make(plan.world_size(), loopback);
  }

  Expected<RunSummary> run() {
    std::vector<std::thread> threads;
    for (int r = 0; r < plan_.world_size(); r++) threads.emplace_back([this, r] { run_one(r); });
    watch();
    for (auto& thread : threads) thread.join();
    status_.clear();
    return result();
  }

 private:
  void run_one(int rank) {
    auto transport = hub_->connect(rank);
    Rank& mine = ranks_[static_cast<size_t>(rank)];
    // Only rank 0 calls it, so the status needs no lock.
    auto on_step = [this](const StepReport& report) { status_.step(report); };
    Expected<RunSummary> result;
    try {
      result = functions_.run(plan_, *transport, options_.run, on_step, &mine.instructions);
    } catch (const std::exception& e) {
      result = tl::make_unexpected(Error{ErrorKind::kInternal, fmt::format("exception: {}", e.what()), ""});
    }
    if (!result) transport->abort(result.error().message);
    std::lock_guard lock(mutex_);
    mine.result = std::move(result);
    finished_++;
    changed_.notify_all();
  }

  // Until all threads have finished, or one hangs.
  void watch() {
    std::unique_lock lock(mutex_);
    while (finished_ < ranks_.size()) {
      changed_.wait_for(lock, std::chrono::milliseconds(200));
      const auto now = Clock::now();
      for (size_t r = 0; r < ranks_.size() && !hung_; r++) {
        Rank& rank = ranks_[r];
        const int64_t seen = rank.instructions;
        if (rank.result || seen != rank.seen) rank.progressed = now;
        rank.seen = seen;
        // Loading the model has no instructions to count.
        const double limit = options_.timeout_seconds * (seen == 0 ? 5 : 1);
        if (std::chrono::duration<double>(now - rank.progressed).count() > limit) end_hang(lock, r);
      }
    }
  }

  void end_hang(std::unique_lock<std::mutex>& lock, size_t rank) {
    const int r = static_cast<int>(rank);
    hung_ = Error{ErrorKind::kUser, fmt::format("rank {} made no progress for {:.1f} s", r, options_.timeout_seconds),
                  position_text(plan_, r, ranks_[rank].seen)};
    hub_->abort(r, hung_->message);
    if (changed_.wait_for(lock, std::chrono::seconds(5), [&] { return finished_ == ranks_.size(); })) return;
    // A thread that does not come back cannot be ended alone, and what it works on cannot be freed.
    std::fprintf(stderr, "piper: %s, and cannot be stopped\n", hung_->message.c_str());
    std::_Exit(static_cast<int>(ErrorKind::kUser));
  }

  Expected<RunSummary> result() const {
    if (hung_) return tl::make_unexpected(*hung_);
    const auto cause = hub_->first_abort();
    if (!cause) return *ranks_[0].result;
    const auto& first = *ranks_[static_cast<size_t>(cause->rank)].result;
    Error error = first ? Error{ErrorKind::kUser, cause->why, ""} : first.error();
    if (ranks_.size() > 1) error.message = about_rank(cause->rank, error.message, ": ");
    return tl::make_unexpected(error);
  }

  const plan::Plan& plan_;
  const LaunchOptions& options_;
  const JobFunctions& functions_;
  Status status_;
  std::shared_ptr<LoopbackHub> hub_;
  std::vector<Rank> ranks_;
  std::mutex mutex_;  // guards results and finished_
  std::condition_variable changed_;
  size_t finished_ = 0;
  std::optional<Error> hung_;
};

}  // namespace

Expected<RunSummary> launch_threads(const plan::Plan& plan, const LaunchOptions& options,
                                    const JobFunctions& functions) {
  return ThreadJob(plan, options, functions).run();
}

}  // namespace piper::runtime
