// From a scheduled DAG to a plan: kernel lists, one program per class of ranks, memory, tables.
#pragma once

#include "ir/dag.h"
#include "ir/strategy.h"
#include "plan/plan.h"
#include "support/diagnostics.h"

namespace piper::codegen {

// `device`: the kind of device, "cpu". Reports E0513 for an op that the device has no kernel for; the plan is empty then.
plan::Plan lower(const ir::TrainingDag& dag, const ir::Strategy& strategy, const std::string& device,
                 support::Diagnostics& diagnostics);

}  // namespace piper::codegen
