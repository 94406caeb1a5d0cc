// A plan with every field set to something random: not a sensible one, only one that must survive writing and reading.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace piper::testing {

plan::Plan random_plan(uint64_t seed);

}  // namespace piper::testing
