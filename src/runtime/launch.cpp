#include "runtime/launch.h"

#include "runtime/job.h"

namespace piper::runtime {

namespace {

JobFunctions real_functions() { return {check_run, run_rank}; }

}  // namespace

Expected<RunSummary> launch(const plan::Plan& plan, const LaunchOptions& options) {
  return launch_job(plan, options, real_functions());
}

int worker_main() { return serve_worker(real_functions()); }

}  // namespace piper::runtime
