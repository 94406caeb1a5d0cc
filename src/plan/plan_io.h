// Reading and writing plans. A plan is a folder with `plan.pb` (plan.proto) in it.
#pragma once

#include <string>

#include "plan/plan.h"
#include "support/error.h"

namespace piper::plan {

// Writes `<folder>/plan.pb`, beside the old one and renamed over it; makes the folder.
support::Expected<void> write_plan(const Plan& plan, const std::string& folder);
// Reads it back; a missing, truncated, foreign or newer file is a UserError that says which. All indices are checked
// (chunks, buffers, streams, waits, peers, groups), so that readers need not.
support::Expected<Plan> read_plan(const std::string& folder);

std::string serialize(const Plan& plan);
support::Expected<Plan> parse_plan(const std::string& bytes, const std::string& where);
// xxh3 of the serialized plan.
uint64_t plan_hash(const Plan& plan);

}  // namespace piper::plan
