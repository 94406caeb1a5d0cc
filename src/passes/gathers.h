// Parameters that live as shards (zero 3): when they are gathered, and how long they stay.
//
// At most prefetch + n buckets are gathered on a device at once, where n is the most that one part of a compute needs. When
// one more is needed, the one goes whose next use is farthest away, and its successor is gathered as soon as that one's
// last use has ended. So what is gathered depends on the order of the computes, never on how long they take. (The optimal
// replacement for a known sequence: L. A. Belady, "A study of replacement algorithms", 1966.)
#pragma once

#include <vector>

#include "passes/replicate.h"

namespace piper::passes {

// Adds the gathers of a placement, and makes the computes wait for them. A gather's inputs are the computes that must
// have ended before it may begin: the last users of the bucket whose place it takes.
void add_gathers(ir::TrainingDag& dag, const std::vector<Step>& steps, ir::PlacementId placement);

}  // namespace piper::passes
