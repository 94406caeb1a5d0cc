// Layout of expressions and single statements, from ANTLR's tree. Only format.cpp and format_expr.cpp include this.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "frontend/piper/layout.h"
#include "frontend/piper/parse_tree.h"

namespace piper::frontend {

class ExprFormatter {
 public:
  explicit ExprFormatter(antlr4::CommonTokenStream& tokens) : tokens_(tokens) {}

  layout::Doc expr(PiperParser::ExprContext* tree);
  // ... whose further lines stand `columns` to the right, unless they are the inside of a bracket.
  layout::Doc hanging(PiperParser::ExprContext* tree, int columns);
  // A statement or setting without blocks: keywords, names and expressions in a row, then its clauses.
  layout::Doc words(antlr4::ParserRuleContext* tree);

  // Comments between two tokens, in order.
  std::vector<antlr4::Token*> comments_between(antlr4::Token* before, antlr4::Token* after) const;
  // Those that a layout has room for.
  const std::set<antlr4::Token*>& placed() const { return placed_; }

 private:
  // A place where a line may be broken, with the comments that stand there.
  layout::Doc break_between(antlr4::Token* before, antlr4::Token* after, layout::Doc otherwise);
  layout::Doc comments_after(antlr4::Token* before, antlr4::Token* after);
  layout::Doc bracketed(const std::string& open, std::vector<layout::Doc> inner, antlr4::Token* before, antlr4::Token* close);
  // Items between brackets, one a line when they do not fit.
  layout::Doc items(antlr4::Token* open, const std::vector<antlr4::ParserRuleContext*>& trees, antlr4::Token* close);
  layout::Doc item(antlr4::ParserRuleContext* tree);
  layout::Doc binary(PiperParser::BinaryContext* tree);
  layout::Doc prefix_chain(PiperParser::ExprContext* tree);
  layout::Doc comprehension(PiperParser::ListOfContext* tree);
  layout::Doc function(PiperParser::FnStatementContext* tree);

  antlr4::CommonTokenStream& tokens_;
  std::set<antlr4::Token*> placed_;
};

}  // namespace piper::frontend
