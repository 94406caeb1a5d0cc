// Valid plans made by hand, small but of the shape that the compiler writes: pipelines of data-parallel stages with
// buckets, counts of targets, norms and updates. Used by the tests of plans, the verifier and its mutations.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace piper::testing {

struct PlanOptions {
  std::vector<int> widths = {1, 1};  // ranks of each stage; neighbours are equal or one of them is 1
  int microbatches = 3;
  int batch = 6;
  bool one_f_one_b = true;           // else all forwards, then all backwards
  bool tied = false;                 // the last stage also uses a parameter of the first
  bool reuse = true;                 // activations of different microbatches share bytes
};

plan::Plan build_plan(const PlanOptions& options);

// The plans that tests run over, with names.
std::vector<std::pair<std::string, PlanOptions>> plan_family();

}  // namespace piper::testing
