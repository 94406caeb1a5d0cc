#include "frontend/piper/ast.h"

namespace piper::frontend::ast {

std::string_view op_text(Op op) {
  static constexpr std::string_view kText[] = {"or", "and", "not", "==", "!=", "<", "<=", ">", ">=", "..", "+", "-", "*", "/", "%", "-", "++", "|"};
  return kText[static_cast<size_t>(op)];
}

std::string_view match_text(MatchKind kind) {
  static constexpr std::string_view kText[] = {"path", "name", "op", "param", "input", "output"};
  return kText[static_cast<size_t>(kind)];
}

}  // namespace piper::frontend::ast
