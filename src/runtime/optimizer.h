// The update at the end of a step: whether it happens, how gradients are scaled, and what it does to a bucket.
#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.h"
#include "runtime/bind.h"

namespace piper::runtime {

// What a step needs to know beside its program.
struct StepContext {
  int64_t step = 0;     // data and learning rate follow it
  int64_t applied = 0;  // updates applied before this step; fewer than `step` when steps were skipped
};

enum class Verdict : uint8_t { kApply, kSkip, kStop };

struct StepDecision {
  Verdict verdict = Verdict::kApply;
  double norm = 0;   // of all gradients
  double scale = 1;  // that clipping multiplies gradients by
};

// From the statistics of a step. They are the same on all ranks, and so is the decision.
StepDecision decide(const plan::Plan& plan, const double* stats);

// Runs one kUpdate: ranges are parameter, gradient, states and statistics; the first three hold the bucket's elements from
// `start` on. Does nothing unless the verdict is kApply.
StepDecision apply_update(const plan::Plan& plan, int32_t update, std::span<const BoundRange> ranges, int64_t start,
                          const StepContext& context);

}  // namespace piper::runtime
