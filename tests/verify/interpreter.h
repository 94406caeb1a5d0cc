// Runs a plan on symbolic values under one legal timing: the judge of the mutation tests, and independent of the
// verifier. Values are hashes, sums are sums of hashes; an instruction is not atomic, so that races show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace piper::testing {

struct Outcome {
  std::string failure;            // "" when the step ran to its end
  std::vector<uint64_t> results;  // parameters, optimizer state and statistics of all ranks
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// One step with rendezvous transports. The seed picks the timing and what memory holds before the step.
Outcome interpret(const plan::Plan& plan, uint64_t seed);

}  // namespace piper::testing
