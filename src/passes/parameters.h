// What directives say of parameters, by their names: frozen ones, and pairs that are one.
#pragma once

#include "ir/dag.h"
#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::passes {

// `freeze`: what its globs match is not trained.
void freeze_parameters(ir::Model& model, const ir::Strategy& strategy, support::Diagnostics& diagnostics);

// `tie "a" "b"`: what reads b reads a instead, and b is gone. From then on it is as if the file had one initializer with
// two uses: its gradient is the sum over both, wherever they are placed. After tags (operations that are added get those
// of their reader) and after `freeze`.
void tie_parameters(ir::TrainingDag& dag, const ir::Strategy& strategy, support::Diagnostics& diagnostics);

}  // namespace piper::passes
