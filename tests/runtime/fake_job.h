// A job without an executor: ranks that add numbers over the real transport and go wrong on request.
#pragma once

#include <string>

#include "plan/plan.h"
#include "runtime/job.h"

namespace piper::runtime {

// A plan of `world_size` equal ranks with four instructions each.
plan::Plan fake_plan(int world_size, uint64_t seed = 0);

// Runs `options.steps` steps; the loss of step s is the sum of (rank + 1) * (s + 1) over all ranks. `options.data` may
// ask for a fault, as "rank=2,step=1,kind=kill". Kinds: kill, abort, stop, exit, quit (exit code 0), check, throw,
// error, hang, deaf (hang and ignore SIGTERM), late_stop (stop ahead of the others), print, nan.
JobFunctions fake_functions();

}  // namespace piper::runtime
