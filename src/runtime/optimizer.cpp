#include "runtime/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ops/update.h"
#include "runtime/lr_schedule.h"

namespace piper::runtime {

StepDecision decide(const plan::Plan& plan, const double* stats) {
  StepDecision decision;
  decision.norm = std::sqrt(stats[0]);
  if (stats[1] > 0 || !std::isfinite(decision.norm)) {
    decision.verdict = plan.skip_nonfinite ? Verdict::kSkip : Verdict::kStop;
  } else if (plan.clip_norm > 0) {
    // The 1e-6 is PyTorch's, so that the same numbers come out.
    decision.scale = std::min(1.0, plan.clip_norm / (decision.norm + 1e-6));
  }
  return decision;
}

namespace {

// Statistics move on whatever the learning rate is, and are not clipped.
void advance(const plan::Update& update, std::span<const BoundRange> ranges) {
  float* values = reinterpret_cast<float*>(ranges[0].data);
  const float* contributions = reinterpret_cast<const float*>(ranges[1].data);
  for (const plan::UpdateRun& run : update.runs) {
    const float kept = static_cast<float>(run.kept);
    for (int64_t i = run.begin; i < run.end; i++) values[i] = kept * values[i] + contributions[i];
  }
}

}  // namespace

StepDecision apply_update(const plan::Plan& plan, int32_t update, std::span<const BoundRange> ranges, int64_t start,
                          const StepContext& context) {
  const StepDecision decision = decide(plan, reinterpret_cast<const double*>(ranges.back().data));
  if (decision.verdict != Verdict::kApply) return decision;
  if (plan.updates[static_cast<size_t>(update)].statistics) {
    advance(plan.updates[static_cast<size_t>(update)], ranges);
    return decision;
  }
  const plan::OptimizerConfig& config = plan.optimizer;
  auto floats = [&](size_t i) {
    return i + 1 < ranges.size() ? reinterpret_cast<float*>(ranges[i].data) : nullptr;
  };
  auto at = [](float* data, int64_t offset) { return data ? data + offset : nullptr; };
  float *w = floats(0), *g = floats(1), *m = floats(2), *v = floats(3);
  ops::UpdateStep step{learning_rate(config.lr, plan.schedule, context.step), config.beta1, config.beta2, config.eps, 0,
                       config.momentum, config.nesterov, context.applied + 1, decision.scale};
  const int64_t held = static_cast<int64_t>(ranges[0].bytes / sizeof(float));
  for (const plan::UpdateRun& run : plan.updates[static_cast<size_t>(update)].runs) {
    step.weight_decay = run.decay ? config.weight_decay : 0;
    const int64_t begin = std::max<int64_t>(run.begin - start, 0), n = std::min(run.end - start, held) - begin;
    if (n <= 0) continue;
    switch (config.kind) {
      case plan::OptimizerKind::kSgd: ops::sgd(w + begin, g + begin, at(m, begin), n, step); break;
      case plan::OptimizerKind::kAdam:
        ops::adam(w + begin, g + begin, at(m, begin), at(v, begin), n, step);
        break;
      case plan::OptimizerKind::kAdamW:
        ops::adamw(w + begin, g + begin, at(m, begin), at(v, begin), n, step);
        break;
    }
  }
  return decision;
}

}  // namespace piper::runtime
