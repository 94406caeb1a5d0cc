// Structural rules of a plan: every index points at something, every range lies in its buffer for every rank, every
// opcode has the operands it needs. The reader and the verifier begin with it, so that nobody else has to.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace piper::plan {

struct Problem {
  std::string message;
  int program = -1;      // -1: a table of the plan
  int rank = -1;         // an example, where sizes or peers of a rank are at fault
  int instruction = -1;
  // "program 0, instruction 12 of rank 3: " or ""
  std::string where(const Plan& plan) const;
};

// All problems, up to a bound; empty when the plan is well formed. Cost follows the plan's size, also for hostile plans.
std::vector<Problem> check(const Plan& plan);

// The first rank of each set of ranks that run one program with the same numbers of samples and the same pieces: the
// sizes and places of all ranges are equal within such a set. Ascending.
std::vector<int> size_representatives(const Plan& plan);

// Bytes of a dense tensor, or -1 when a dim is negative or the size is beyond any machine.
int64_t tensor_bytes(DType dtype, const std::vector<int64_t>& shape);

}  // namespace piper::plan
