// What a DAG must fulfil after each pass. A violation is a bug of a pass, not of the user: InternalError.
#pragma once

#include <string>

#include "ir/dag.h"

namespace piper::passes {

void check_dag(const ir::TrainingDag& dag, const std::string& after_pass);

}  // namespace piper::passes
