// The learning rate of a step.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace piper::runtime {

// Linear warm-up (step t < warmup has lr * (t + 1) / warmup), then constant, or falling to `floor` at step `total`,
// linearly or as half a cosine; `floor` from there on.
double learning_rate(double lr, const plan::LrScheduleConfig& schedule, int64_t step);

}  // namespace piper::runtime
