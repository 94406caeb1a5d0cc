// Operations whose result for a sample depends on other samples. Used by annotate and place.
#pragma once

#include <vector>

#include "passes/pipeline.h"

namespace piper::passes {

// Gives every live batch normalisation in its training form the groups whose statistics it uses
// (`coupled_groups`, or the whole batch), and refuses what couples samples otherwise when the batch
// is cut.
void set_coupling(TrainingDag& dag, const std::vector<char>& live, const Strategy& strategy, Diagnostics& diagnostics);

// Every share of the batch that a coupling operation runs on is whole groups.
void check_groups(const TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics);

}  // namespace piper::passes
