// Matching selectors against nodes, and errors for selectors that match nothing.
#pragma once

#include <vector>

#include "ir/dag.h"
#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::passes {

// Whether all constraints hold for these tags. With `ignore`, constraints on that tag are not looked at.
bool matches(const ir::Selector& selector, const ir::Tags& tags, const std::string& ignore = "");
// ... and the node's pass is one that the selector names.
bool matches(const ir::Selector& selector, const ir::Node& node);

// Whether some device sees less than the whole batch at once.
bool cuts_batch(const ir::Strategy& strategy);

// Reports E0504 for a selector that no node matches, with the values that do exist for each constrained tag.
void report_no_match(const ir::TrainingDag& dag, const ir::Selector& selector, support::Diagnostics& diagnostics);

}  // namespace piper::passes
