#include "runtime/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace piper::runtime {

double learning_rate(double lr, const plan::LrScheduleConfig& schedule, int64_t step) {
  if (step < schedule.warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  if (schedule.kind == plan::ScheduleKind::kConstant) return lr;
  const int64_t length = schedule.total - schedule.warmup;
  // A schedule no longer than its warm-up has nothing left to fall through.
  const double progress =
      length <= 0 ? 1.0
                  : std::min(1.0, static_cast<double>(step - schedule.warmup) / static_cast<double>(length));
  if (schedule.kind == plan::ScheduleKind::kLinear) return lr + (schedule.floor - lr) * progress;
  return schedule.floor + (lr - schedule.floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace piper::runtime
