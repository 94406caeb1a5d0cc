// Import rules of recurrent layers.
#pragma once

#include <vector>

#include "ops/op.h"

namespace piper::ops {

const std::vector<ImportRule>& recurrent_rules();

}  // namespace piper::ops
