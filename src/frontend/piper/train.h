// The train block: losses, optimizer, and so on, from the file and from --set.
#pragma once

#include "frontend/piper/evaluator.h"

namespace piper::frontend {

// Evaluates one setting into `train`. `first` tells whether an earlier value of the same setting is replaced (--set).
void apply_setting(const ast::TrainItem& item, Evaluator& evaluator, Module& module, ir::Train& train);
// What does not depend on one setting alone.
void check_train(const ir::Train& train, Evaluator& evaluator);

}  // namespace piper::frontend
