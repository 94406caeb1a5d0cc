// From ANTLR's tree to the plain syntax tree. Only parse.cpp, parse_tree.cpp and the formatter include this.
#pragma once

#include <PiperLexer.h>
#include <PiperParser.h>

#include <functional>

#include "frontend/piper/ast.h"
#include "support/diagnostics.h"

namespace piper::frontend {

class TreeBuilder {
 public:
  TreeBuilder(int32_t file, support::Diagnostics& diagnostics);

  // Trees must be free of syntax errors.
  ast::ExprPtr expr(PiperParser::ExprContext* tree);
  ast::Statement statement(PiperParser::StatementContext* tree);
  ast::Statement simple(PiperParser::SimpleStatementContext* tree);
  ast::TrainItem train_item(PiperParser::TrainItemContext* tree);
  support::SourceSpan span(const antlr4::Token* token) const;

 private:
  ast::ExprPtr nested(PiperParser::ExprContext* tree);
  support::SourceSpan span(antlr4::ParserRuleContext* tree) const;
  ast::Name name(PiperParser::NameContext* tree) const;
  ast::Name word(antlr4::tree::TerminalNode* token) const;
  ast::StringAt string(antlr4::tree::TerminalNode* token);
  std::string unescape(const antlr4::Token* token);
  void literal(antlr4::Token* token, ast::Expr& out);
  void number(const std::string& text, support::SourceSpan at, ast::Expr& out);
  void size(const std::string& text, support::SourceSpan at, ast::Expr& out);
  std::vector<ast::Binding> bindings(const std::vector<PiperParser::BindingContext*>& trees);
  ast::TagConstraint constraint(PiperParser::ConstraintContext* tree);
  // A clause is a word and what follows it.
  ast::Clause clause(antlr4::ParserRuleContext* tree, PiperParser::ExprContext* value, PiperParser::NameContext* bare);
  std::vector<ast::Statement> block(PiperParser::BlockContext* tree);
  ast::If if_statement(PiperParser::IfStatementContext* tree);
  ast::ExprPtr make(ast::Expr::Kind kind, antlr4::ParserRuleContext* tree) const;
  void report_duplicate_clauses(const std::vector<ast::Clause>& clauses);

  int32_t file_;
  support::Diagnostics& diagnostics_;
  std::vector<int32_t> bytes_;  // of each code point
  int depth_ = 0;               // of nested expressions
};

// Parses a file and hands out its tree, which lives as long as the call. False after a mistake, which is reported.
bool visit_tree(int32_t file, support::Diagnostics& diagnostics,
                const std::function<void(PiperParser::FileContext*, antlr4::CommonTokenStream&)>& visit);

}  // namespace piper::frontend
