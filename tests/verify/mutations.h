// Single faults in a plan, of named kinds.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace piper::testing {

struct Mutation {
  std::string kind;
  // Changes the plan in one place and says where; "" when this kind found nothing to change.
  std::string (*apply)(plan::Plan& plan, std::mt19937_64& rng);
};

const std::vector<Mutation>& mutations();

}  // namespace piper::testing
