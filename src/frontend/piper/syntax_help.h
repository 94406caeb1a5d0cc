// What a syntax error says besides its place: how a statement is written, which word was meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/diagnostics.h"

namespace piper::frontend {

// Words that start a statement, and those of clauses of the statement that starts with `keyword`.
const std::vector<std::string>& statement_words();
std::vector<std::string> clause_words(std::string_view keyword);
const std::vector<std::string>& setting_words();
bool is_reserved(std::string_view word);
// "place SELECTOR on DEVICES [p2p_stream NAME]", or "" for an unknown keyword.
std::string_view statement_form(std::string_view keyword);

// Reads a file into the SourceMap and returns its number; E0001 at `span` when it cannot be read.
std::optional<int32_t> read_text(const std::string& path, support::SourceSpan span, support::Diagnostics& diagnostics);
// Checks what no parser should have to: size and UTF-8. Reports and returns false.
bool check_text(int32_t file, support::Diagnostics& diagnostics);

}  // namespace piper::frontend
