// The verifier: proves a plan before it runs, from the plan alone. verify.cpp lists the proofs in order; docs/plan.md
// says what is shown and what is not.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "support/diagnostics.h"

namespace piper::verify {

// Something that keeps the plan from being proved.
struct Finding {
  support::Code code = support::Code::E0606;
  std::string message;
  std::vector<std::string> notes;
  int program = -1;  // -1: the whole plan
  int rank = -1;     // an example
  int instruction = -1;
};

// Empty: the plan is well formed, every message and collective is matched, no legal timing deadlocks, no two
// instructions race, and parameters are updated once from all contributions of the contract.
// A malformed plan (E0606) is not looked at further.
std::vector<Finding> verify(const plan::Plan& plan);

// "error[E0604]: deadlock ..." with indented notes, as `piper verify` and `piper compile` print it.
std::string to_string(const Finding& finding);

}  // namespace piper::verify
