// Files written by a whole job: every rank that has a part sends it to rank 0, which writes. All functions are called
// by all ranks, between steps.
#pragma once

#include <string>

#include "plan/plan.h"
#include "runtime/executor.h"
#include "runtime/trace.h"
#include "runtime/transport.h"
#include "support/error.h"

namespace piper::runtime {

// `<folder>/model.safetensors`: every parameter once, under its own name and in its own layout.
support::Expected<void> save_weights(const plan::Plan& plan, const Executor& executor, Transport& transport,
                                     const std::string& folder);
// The gradients that the last step's updates read, before clipping, under the names of their parameters.
support::Expected<void> save_gradients(const plan::Plan& plan, const Executor& executor, Transport& transport,
                                       const std::string& path);
// The trace of a step on all ranks.
support::Expected<void> save_trace(const plan::Plan& plan, StepTrace trace, Transport& transport,
                                   const std::string& path);

}  // namespace piper::runtime
