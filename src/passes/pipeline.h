// The compiler's table of contents: from a model and a strategy to a DAG that is placed, ordered and scheduled.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/dag.h"
#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::passes {

using ir::Strategy;
using ir::TrainingDag;
using support::Diagnostics;

#define PIPER_PASS(name, after) void name(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics);
#include "passes/passes.def"
#undef PIPER_PASS

// Refuses what the language can say and no pass does yet (E0510).
void check_supported(const ir::Model& model, const Strategy& strategy, Diagnostics& diagnostics);

// Names of the passes, in order.
std::vector<std::string> pass_names();

// Runs all passes (up to and including `last`, when given), with the checks of check_dag.h between them. Stops after the
// first pass that reports an error and returns nothing then. `after` is called after each pass.
std::optional<TrainingDag> run_passes(ir::Model model, const Strategy& strategy, Diagnostics& diagnostics,
                                      const std::function<void(const std::string&, const TrainingDag&)>& after = {},
                                      const std::string& last = "");

}  // namespace piper::passes
