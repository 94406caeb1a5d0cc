// One diagnostic as a block with source lines and carets, for terminals.
#pragma once

#include <string>
#include <string_view>

#include "support/diagnostics.h"
#include "support/error.h"

namespace piper::support {

std::string render_block(const SourceMap& sources, const Diagnostic& diagnostic, bool color);

// The text with control characters and invalid UTF-8 replaced, safe to write to a terminal; newlines stay.
std::string printable(std::string_view text);

// An error that is no diagnostic, in the same forms: without a code, and without a place.
std::string render_error(const Error& error, Diagnostics::Format format, bool color);

}  // namespace piper::support
