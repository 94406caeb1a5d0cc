// An evaluated strategy as text, for golden tests.
#pragma once

#include <string>

#include "ir/strategy.h"

namespace piper::test {

std::string print(const ir::Strategy& strategy);

}  // namespace piper::test
