// Traces: when each instruction of a step ran, written as Chrome's JSON (Perfetto opens it), a process per rank and a
// track per stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "support/error.h"

namespace piper::runtime {

struct Interval {
  int64_t begin = 0;  // nanoseconds of the host's steady clock
  int64_t end = 0;
};

struct StepTrace {
  std::vector<Interval> times;  // by instruction
};

// Writes the traces of all ranks, `traces[rank]`. Times of ranks on one host share a clock.
support::Expected<void> write_trace(const plan::Plan& plan, const std::vector<StepTrace>& traces,
                                    const std::string& path);

}  // namespace piper::runtime
