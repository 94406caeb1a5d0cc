// Text to syntax tree. This is the border to ANTLR: no type, exception or message of it gets out.
// Mistakes go into Diagnostics, at most one for a statement, and parsing goes on with the next statement.
#pragma once

#include <optional>

#include "frontend/piper/ast.h"
#include "support/diagnostics.h"

namespace piper::frontend {

// Nesting of brackets, and of words that open an expression, that a file may have.
constexpr int kMaxBrackets = 100;
constexpr int kMaxDepth = 1000;
constexpr size_t kMaxFileBytes = 1 << 20;

// `file` is a text of the SourceMap of `diagnostics`. Nothing on any mistake.
std::optional<ast::File> parse_file(int32_t file, support::Diagnostics& diagnostics);
// One expression (the value of a -D option).
ast::ExprPtr parse_expression(int32_t file, support::Diagnostics& diagnostics);
// One line of a train block (made from a --set option).
std::optional<ast::TrainItem> parse_setting(int32_t file, support::Diagnostics& diagnostics);

}  // namespace piper::frontend
