// The difference of two texts, as `diff -u` writes it.
#pragma once

#include <string>

namespace piper::support {

// Unified diff with three lines of context; "" when the texts are equal.
std::string unified_diff(const std::string& before, const std::string& after, const std::string& before_name,
                         const std::string& after_name);

}  // namespace piper::support
