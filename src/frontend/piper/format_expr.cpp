#include "frontend/piper/format_expr.h"

#include <algorithm>

namespace piper::frontend {

using antlr4::ParserRuleContext;
using antlr4::Token;
using layout::Doc;
using P = PiperParser;

namespace {

constexpr int kIndent = 2;

template <class T>
T* as(antlr4::tree::ParseTree* tree) {
  return dynamic_cast<T*>(tree);
}

Token* first_of(antlr4::tree::ParseTree* tree) {
  if (auto* terminal = as<antlr4::tree::TerminalNode>(tree)) return terminal->getSymbol();
  return as<ParserRuleContext>(tree)->getStart();
}
Token* last_of(antlr4::tree::ParseTree* tree) {
  if (auto* terminal = as<antlr4::tree::TerminalNode>(tree)) return terminal->getSymbol();
  return as<ParserRuleContext>(tree)->getStop();
}
Token* symbol(antlr4::tree::ParseTree* tree) { return as<antlr4::tree::TerminalNode>(tree)->getSymbol(); }

std::string operator_of(P::BinaryContext* tree) { return tree->children[1]->getText(); }

// Operators that make one chain: `a + b - c`.
int level(const std::string& op) {
  if (op == "*" || op == "/" || op == "%") return 1;
  if (op == "+" || op == "-") return 2;
  if (op == "..") return 3;
  if (op == "and") return 5;
  if (op == "or") return 6;
  if (op == "++") return 7;
  if (op == "|") return 8;
  return 4;
}

// Whether the expression ends with the bracket that its items are between, which then stands where its line began.
bool is_bracketed(ParserRuleContext* tree) {
  const std::string end = tree->getStop()->getText();
  const bool list = as<P::ListContext>(tree) || as<P::ListOfContext>(tree);
  return list || ((end == ")" || end == "]") && (as<P::CallContext>(tree) || as<P::SelectorContext>(tree) || as<P::DevicesContext>(tree)));
}

bool is_clause(antlr4::tree::ParseTree* tree) {
  return as<P::PlaceClauseContext>(tree) || as<P::ReplicateClauseContext>(tree) || as<P::ShardClauseContext>(tree) ||
         as<P::StreamClauseContext>(tree);
}

}  // namespace

std::vector<Token*> ExprFormatter::comments_between(Token* before, Token* after) const {
  std::vector<Token*> found;
  for (size_t i = before->getTokenIndex() + 1; i < after->getTokenIndex(); i++) {
    if (tokens_.get(i)->getType() == PiperLexer::COMMENT) found.push_back(tokens_.get(i));
  }
  return found;
}

Doc ExprFormatter::break_between(Token* before, Token* after, Doc otherwise) {
  if (comments_between(before, after).empty()) return otherwise;
  return layout::concat({comments_after(before, after), layout::hard_line()});
}

Doc ExprFormatter::comments_after(Token* before, Token* after) {
  const std::vector<Token*> comments = comments_between(before, after);
  std::vector<Doc> parts;
  for (Token* c : comments) {
    placed_.insert(c);
    std::string text = c->getText();
    text.erase(text.find_last_not_of(" \t") + 1);
    if (c->getLine() == before->getLine()) {
      parts.push_back(layout::comment(std::move(text)));
    } else {
      parts.push_back(layout::hard_line());
      parts.push_back(layout::text(std::move(text)));
    }
  }
  return layout::concat(std::move(parts));
}

// What is between two brackets, to the right of them.
Doc ExprFormatter::bracketed(const std::string& open, std::vector<Doc> inner, Token* before, Token* close) {
  const bool comments = !comments_between(before, close).empty();
  inner.push_back(comments_after(before, close));
  return layout::group(layout::concat({layout::text(open), layout::nest(kIndent, layout::concat(std::move(inner))),
                                       comments ? layout::hard_line() : layout::soft_line(), layout::text(close->getText())}));
}

Doc ExprFormatter::items(Token* open, const std::vector<ParserRuleContext*>& trees, Token* close) {
  if (trees.empty()) return layout::text(open->getText() + close->getText());
  antlr4::tree::ParseTree* only = trees.size() == 1 ? trees[0] : nullptr;
  if (as<P::ArgumentContext>(only) && only->children.size() == 1) only = only->children[0];
  const bool hugs = (as<P::ListContext>(only) || as<P::ListOfContext>(only)) &&
                    comments_between(open, trees[0]->getStart()).empty() && comments_between(trees[0]->getStop(), close).empty();
  if (hugs) return layout::concat({layout::text(open->getText()), item(trees[0]), layout::text(close->getText())});
  std::vector<Doc> inner{break_between(open, trees[0]->getStart(), layout::soft_line())};
  for (size_t i = 0; i < trees.size(); i++) {
    inner.push_back(item(trees[i]));
    if (i + 1 == trees.size()) break;
    inner.push_back(layout::text(","));
    inner.push_back(break_between(trees[i]->getStop(), trees[i + 1]->getStart(), layout::line()));
  }
  return bracketed(open->getText(), std::move(inner), trees.back()->getStop(), close);
}

Doc ExprFormatter::hanging(P::ExprContext* tree, int columns) {
  return is_bracketed(tree) ? expr(tree) : layout::nest(columns, expr(tree));
}

// `name = value`, `tag = *`, or a value.
Doc ExprFormatter::item(ParserRuleContext* tree) {
  if (auto* e = as<P::ExprContext>(tree)) return expr(e);
  std::vector<Doc> parts;
  for (antlr4::tree::ParseTree* child : tree->children) {
    if (auto* e = as<P::ExprContext>(child)) parts.push_back(expr(e));
    else parts.push_back(layout::text(child->getText() == "=" ? " = " : child->getText()));
  }
  return layout::concat(std::move(parts));
}

// A chain of operators of one level, each at the start of its line when the chain is broken.
Doc ExprFormatter::binary(P::BinaryContext* tree) {
  const int of = level(operator_of(tree));
  std::vector<P::BinaryContext*> chain;
  P::ExprContext* left = tree;
  while (auto* b = as<P::BinaryContext>(left)) {
    if (level(operator_of(b)) != of) break;
    chain.push_back(b);
    left = b->expr(0);
  }
  std::vector<Doc> parts{expr(left)};
  for (size_t i = chain.size(); i-- > 0;) {
    const std::string op = operator_of(chain[i]);
    if (op == "..") {
      parts.push_back(layout::text(".."));
    } else {
      parts.push_back(break_between(chain[i]->expr(0)->getStop(), symbol(chain[i]->children[1]), layout::line()));
      parts.push_back(layout::text(op + " "));
    }
    parts.push_back(expr(chain[i]->expr(1)));
  }
  return layout::group(layout::concat(std::move(parts)));
}

// `let … in`, `assert … in` and `if … then … else` extend to the right: a chain of them is one group, a line each.
Doc ExprFormatter::prefix_chain(P::ExprContext* tree) {
  std::vector<Doc> parts;
  for (P::ExprContext* at = tree; at;) {
    if (auto* let = as<P::LetInContext>(at)) {
      parts.push_back(layout::text("let " + let->name()->getText() + " = "));
      parts.push_back(hanging(let->expr(0), 2 * kIndent));
      parts.push_back(layout::text(" in"));
      parts.push_back(break_between(symbol(let->IN()), let->expr(1)->getStart(), layout::line()));
      at = let->expr(1);
    } else if (auto* check = as<P::AssertInContext>(at)) {
      const Doc why = layout::nest(2 * kIndent, layout::concat({layout::line(), expr(check->expr(1)), layout::text(" in")}));
      parts.push_back(layout::group(
          layout::concat({layout::text("assert "), hanging(check->expr(0), 2 * kIndent), layout::text(","), why})));
      parts.push_back(break_between(symbol(check->IN()), check->expr(2)->getStart(), layout::line()));
      at = check->expr(2);
    } else if (auto* choice = as<P::IfElseContext>(at)) {
      const Doc then = break_between(symbol(choice->THEN()), choice->expr(1)->getStart(), layout::line());
      parts.push_back(layout::group(
          layout::concat({layout::text("if "), hanging(choice->expr(0), 2 * kIndent), layout::text(" then"),
                          layout::nest(kIndent, layout::concat({then, expr(choice->expr(1))}))})));
      parts.push_back(break_between(choice->expr(1)->getStop(), symbol(choice->ELSE()), layout::line()));
      parts.push_back(layout::text("else "));
      at = choice->expr(2);
    } else {
      parts.push_back(expr(at));
      at = nullptr;
    }
  }
  return layout::group(layout::concat(std::move(parts)));
}

Doc ExprFormatter::comprehension(P::ListOfContext* tree) {
  std::vector<Doc> inner{break_between(tree->getStart(), tree->expr()->getStart(), layout::soft_line()), expr(tree->expr())};
  Token* before = tree->expr()->getStop();
  for (P::ComprehensionContext* c : tree->comprehension()) {
    inner.push_back(break_between(before, c->getStart(), layout::line()));
    inner.push_back(layout::text("for " + c->name()->getText() + " in "));
    inner.push_back(expr(c->expr(0)));
    for (size_t i = 1; i < c->expr().size(); i++) {
      inner.push_back(layout::text(" if "));
      inner.push_back(expr(c->expr(i)));
    }
    before = c->getStop();
  }
  return bracketed("[", std::move(inner), before, tree->getStop());
}

Doc ExprFormatter::expr(P::ExprContext* tree) {
  if (auto* b = as<P::BinaryContext>(tree)) return binary(b);
  if (as<P::LetInContext>(tree) || as<P::AssertInContext>(tree) || as<P::IfElseContext>(tree)) return prefix_chain(tree);
  if (auto* list = as<P::ListOfContext>(tree)) return comprehension(list);
  if (as<P::VariableContext>(tree) || as<P::LiteralContext>(tree)) return layout::text(tree->getText());
  if (as<P::MatchContext>(tree) || as<P::HasContext>(tree)) {
    return layout::text(tree->children[0]->getText() + " " + tree->children[1]->getText());
  }
  if (auto* negate = as<P::NegateContext>(tree)) return layout::concat({layout::text("-"), expr(negate->expr())});
  if (auto* invert = as<P::InvertContext>(tree)) return layout::concat({layout::text("not "), expr(invert->expr())});
  if (auto* index = as<P::IndexContext>(tree)) {
    return layout::concat({expr(index->expr(0)), layout::text("["), expr(index->expr(1)), layout::text("]")});
  }
  if (auto* parens = as<P::GroupContext>(tree)) {
    return layout::group(layout::concat({layout::text("("), layout::nest(1, expr(parens->expr())), layout::text(")")}));
  }
  // What is left has a head, and items between brackets: calls, selectors, device sets, lists.
  std::string head;
  std::vector<ParserRuleContext*> inside;
  Token* open = nullptr;
  for (antlr4::tree::ParseTree* child : tree->children) {
    const std::string text = child->getText();
    const bool terminal = as<antlr4::tree::TerminalNode>(child) != nullptr;
    if (!open && terminal && (text == "(" || text == "[")) open = symbol(child);
    else if (!open) head += text;
    else if (!terminal) inside.push_back(as<ParserRuleContext>(child));
  }
  return layout::concat({layout::text(head), items(open, inside, tree->getStop())});
}

Doc ExprFormatter::function(P::FnStatementContext* tree) {
  std::string head = "fn " + tree->name(0)->getText() + "(";
  for (size_t i = 1; i < tree->name().size(); i++) head += (i > 1 ? ", " : "") + tree->name(i)->getText();
  Token* equals = nullptr;
  for (antlr4::tree::ParseTree* child : tree->children) {
    if (child->getText() == "=") equals = symbol(child);
  }
  const Doc body = layout::concat({break_between(equals, tree->expr()->getStart(), layout::line()), expr(tree->expr())});
  return layout::group(layout::concat({layout::text(head + ") ="), layout::nest(kIndent, body)}));
}

Doc ExprFormatter::words(ParserRuleContext* tree) {
  if (auto* fn = as<P::FnStatementContext>(tree)) return function(fn);
  std::vector<Doc> parts, clauses;
  std::vector<ParserRuleContext*> inside;  // bindings of a mesh
  Token *open = nullptr, *before = nullptr;
  for (antlr4::tree::ParseTree* child : tree->children) {
    const std::string text = child->getText();
    const bool where = text == "where" && as<P::TagStatementContext>(tree);
    if (is_clause(child) || where) {
      clauses.push_back(break_between(before, first_of(child), layout::line()));
      clauses.push_back(where ? layout::text(text) : words(as<ParserRuleContext>(child)));
    } else if (as<P::BindingContext>(child)) {
      inside.push_back(as<ParserRuleContext>(child));
    } else if (text == "[" && as<P::MeshStatementContext>(tree)) {
      open = symbol(child);
    } else if (text == "]" && open) {
      parts.push_back(items(open, inside, symbol(child)));
    } else if (!open || text != ",") {
      const bool glued = parts.empty() || text == ",";
      auto& out = clauses.empty() ? parts : clauses;
      if (!glued) out.push_back(layout::text(" "));
      out.push_back(as<P::ExprContext>(child) ? hanging(as<P::ExprContext>(child), kIndent) : layout::text(text));
    }
    before = last_of(child);
  }
  parts.push_back(layout::nest(kIndent, layout::concat(std::move(clauses))));
  return layout::group(layout::concat(std::move(parts)));
}

}  // namespace piper::frontend
