// Where the passes of a chunk are cut into parts, so that collectives over buckets can run between them.
#pragma once

#include "ir/dag.h"

namespace piper::passes {

// Fills the parts of every chunk: a part ends where the gradient of a bucket is complete, and one begins where a bucket
// is read for the first time whose parameters are gathered (zero 3). Needs the buckets.
void cut_parts(ir::TrainingDag& dag);

}  // namespace piper::passes
