// Arena offsets: buffers share bytes only when every access of one happens before every access of the other.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper::codegen {

// Sets the offset of every buffer and the program's arena size. `clock[i][s]`: how many instructions of stream s have ended
// before instruction i starts; `position[i]`: its place in its own stream, from 1.
void plan_memory(plan::Program& program, const std::vector<std::vector<int32_t>>& clock, const std::vector<int32_t>& position);

}  // namespace piper::codegen
