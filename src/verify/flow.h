// What becomes of a piece of a parameter, and of its gradient, in a step on all ranks. Internal to src/verify.
#pragma once

#include "verify/accounts.h"
#include "verify/exchanges.h"

namespace piper::verify {

// E0607 unless, for every parameter and every piece of it that ranks hold as segments:
// - computations read its value from before the update, wherever and however it was gathered,
// - what norms and updates read is the sum of all contributions that the contract has, each once,
// - the norm counts it once over all ranks,
// - every rank that holds it ends the step with its new value.
void check_flows(const plan::Plan& plan, const Matches& matches, Effects& effects, Accounts& accounts,
                 const Exchanges& exchanges, Findings& findings);

}  // namespace piper::verify
