// Runs a function on a thread with a large stack. The parser and the evaluator recurse as deep as a file nests, within
// limits that they check; this makes room for those limits whatever the caller's stack is.
#pragma once

#include <functional>

namespace piper::frontend {

void run_on_big_stack(const std::function<void()>& work);

}  // namespace piper::frontend
