// Import rules of ONNX operators that are no canonical op but made of several.
#pragma once

#include <vector>

#include "ops/op.h"

namespace piper::ops {

const std::vector<ImportRule>& composed_rules();

}  // namespace piper::ops
