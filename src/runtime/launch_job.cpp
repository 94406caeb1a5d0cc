#include <sched.h>

#include <algorithm>
#include <thread>

#include "runtime/job.h"

namespace piper::runtime {

namespace {

// Cores this process may use: fewer than the machine has under `taskset`, in a container or a batch job.
int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

Expected<RunSummary> launch_job(const plan::Plan& plan, const LaunchOptions& options, const JobFunctions& functions) {
  if (plan.world_size() < 1) return support::user_error("the plan has no ranks");
  LaunchOptions final_options = options;
  if (final_options.run.threads < 1) final_options.run.threads = std::max(1, usable_cores() / plan.world_size());
  // Before any rank starts: one message instead of one a rank.
  if (auto checked = functions.check(plan, final_options.run); !checked) return tl::make_unexpected(checked.error());
  if (options.in_process) return launch_threads(plan, final_options, functions);
  return launch_processes(plan, final_options);
}

}  // namespace piper::runtime
