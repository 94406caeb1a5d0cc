// The pages of explain/, embedded into the binary when it is built: `piper explain E0214` prints one.
#pragma once

#include <optional>
#include <string_view>

#include "support/diagnostics.h"

namespace piper::support {

// The Markdown page of a code; empty when explain/ has none (a test forbids that).
std::string_view explain_page(Code code);
// "E0214" or "e0214" as a code.
std::optional<Code> parse_code(std::string_view name);

}  // namespace piper::support
