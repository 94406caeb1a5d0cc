// `piper fmt`: a strategy in the one style.
//
// A statement stands on a line when it fits 100 columns, else it is broken at its brackets, `++`, `in`, `then`. A block
// stays on one line if it was written so and fits. Comments stay where they are, blank lines too, one at a time; trailing
// comments of consecutive lines are aligned, as are the settings of `train`.
#pragma once

#include <optional>
#include <string>

#include "support/diagnostics.h"

namespace piper::frontend {

// The formatted text of a file of the SourceMap; nothing on a mistake in it, which is reported.
std::optional<std::string> format_file(int32_t file, support::Diagnostics& diagnostics);

}  // namespace piper::frontend
