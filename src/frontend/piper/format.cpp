#include "frontend/piper/format.h"

#include <algorithm>
#include <set>

#include "frontend/piper/big_stack.h"
#include "frontend/piper/format_expr.h"
#include "frontend/piper/parse.h"
#include "support/error.h"

namespace piper::frontend {

using antlr4::ParserRuleContext;
using antlr4::Token;
using P = PiperParser;

namespace {

constexpr int kWidth = 100;
constexpr int kIndent = 2;
constexpr const char* kBesideOnLine = "  ";

// What will be one line, or several when it was broken. Columns of consecutive lines are aligned at the end.
struct Line {
  int indent = 0;
  std::string text;
  std::string description;  // of a parameter
  std::string comment;
  bool blank_before = false;
  bool single() const { return text.find('\n') == std::string::npos; }
};

class Formatter {
 public:
  explicit Formatter(antlr4::CommonTokenStream& tokens) : tokens_(tokens), exprs_(tokens) {}

  std::string run(P::FileContext* file) {
    statements(file->statement(), nullptr, file->EOF()->getSymbol(), 0);
    align();
    std::string out;
    for (const Line& line : lines_) {
      if (line.blank_before && !out.empty()) out += "\n";
      out += std::string(static_cast<size_t>(line.indent), ' ') + line.text + line.comment + "\n";
    }
    return out;
  }

 private:
  // ---- comments

  // Puts the comments between two tokens: one that begins on the line of `before` goes behind the line last made, the
  // others on lines of their own. Returns whether a blank line stands before `after`.
  bool comments(Token* before, Token* after, int indent) {
    size_t last = before ? before->getLine() : 0;
    const std::vector<Token*> found = before ? exprs_.comments_between(before, after) : leading(after);
    for (Token* c : found) {
      if (before && c->getLine() == before->getLine() && takes_comment()) {
        lines_.back().comment = c->getText();
      } else {
        Line line;
        line.indent = indent;
        line.text = trimmed(c->getText());
        line.blank_before = last > 0 && c->getLine() > last + 1;
        push(std::move(line));
      }
      last = c->getLine();
    }
    return last > 0 && after->getLine() > last + 1;
  }
  std::vector<Token*> leading(Token* after) const {
    std::vector<Token*> found;
    for (size_t i = 0; i < after->getTokenIndex(); i++) {
      if (tokens_.get(i)->getType() == PiperLexer::COMMENT) found.push_back(tokens_.get(i));
    }
    return found;
  }
  // Whether the line last made has room for a comment at its end.
  bool takes_comment() const { return !lines_.empty() && lines_.back().comment.empty() && !lines_.back().text.starts_with('#'); }
  static std::string trimmed(std::string text) {
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
    return text;
  }
  void push(Line line) {
    if (opened_) line.blank_before = false;  // none behind `{`
    opened_ = false;
    lines_.push_back(std::move(line));
  }

  // ---- statements

  void statements(const std::vector<P::StatementContext*>& list, Token* before, Token* after, int indent) {
    for (P::StatementContext* s : list) {
      const bool blank = comments(before, s->getStart(), indent);
      statement(s, indent, blank);
      before = s->getStop();
    }
    comments(before, after, indent);
  }

  void statement(P::StatementContext* tree, int indent, bool blank) {
    if (auto* s = tree->simpleStatement()) {
      simple(static_cast<ParserRuleContext*>(s->children[0]), indent, blank);
    } else if (auto* s = tree->forStatement()) {
      const std::string head = "for " + s->forHead()->name()->getText() + " in ";
      if (const std::string text = on_one_line(tree, indent); !text.empty()) return put(indent, text, blank);
      put(indent, head + broken(s->forHead()->expr(), indent, head) + " {", blank);
      block(tree->getStart(), s->block(), indent);
      put(indent, "}", false);
    } else if (auto* s = tree->ifStatement()) {
      if (const std::string text = on_one_line(tree, indent); !text.empty()) return put(indent, text, blank);
      conditional(s->getStart(), s, "if ", indent, blank);
    } else {
      train(tree->trainStatement(), indent, blank);
    }
  }

  void put(int indent, std::string text, bool blank) {
    Line line;
    line.indent = indent;
    line.text = std::move(text);
    line.blank_before = blank;
    push(std::move(line));
  }

  // An expression behind `head`, over several lines when it must be.
  std::string broken(P::ExprContext* tree, int indent, const std::string& head) {
    return layout::print(exprs_.hanging(tree, kIndent), kWidth, indent, indent + layout::columns_of(head));
  }

  void simple(ParserRuleContext* tree, int indent, bool blank) {
    Line line;
    line.indent = indent;
    line.blank_before = blank;
    auto* param = dynamic_cast<P::ParamStatementContext*>(tree);
    if (param && param->STRING() && exprs_.comments_between(param->expr()->getStop(), param->getStop()).empty()) {
      line.description = " " + param->STRING()->getText();
      const std::string head = "param " + param->name()->getText() + " = ";
      line.text = head + broken(param->expr(), indent, head);
    } else {
      line.text = layout::print(exprs_.words(tree), kWidth, indent, indent);
    }
    if (!all_placed(tree)) line = verbatim(tree, line);
    push(std::move(line));
  }

  // A statement with comments where no line can be broken stays as it is.
  bool all_placed(ParserRuleContext* tree) const {
    const std::vector<Token*> inside = exprs_.comments_between(tree->getStart(), tree->getStop());
    return std::all_of(inside.begin(), inside.end(), [&](Token* c) { return exprs_.placed().count(c) > 0; });
  }
  Line verbatim(ParserRuleContext* tree, Line line) const {
    line.text.clear();
    line.description.clear();
    for (size_t i = tree->getStart()->getTokenIndex(); i <= tree->getStop()->getTokenIndex(); i++) {
      std::string text = tokens_.get(i)->getText();
      if (text == "\r\n") text = "\n";
      if (text == "\n") line.text = trimmed(line.text);
      line.text += text;
    }
    return line;
  }

  // Comments in the head of a block, which begins at `from`, go into the block.
  void open_block(Token* from, Token* brace, int indent) {
    opened_ = true;
    for (Token* c : exprs_.comments_between(from, brace)) {
      if (exprs_.placed().count(c)) continue;
      if (takes_comment()) lines_.back().comment = c->getText();
      else put(indent + kIndent, trimmed(c->getText()), false);
    }
  }

  void block(Token* from, P::BlockContext* tree, int indent) {
    open_block(from, tree->getStart(), indent);
    statements(tree->statement(), tree->getStart(), tree->getStop(), indent + kIndent);
    opened_ = false;
  }

  void conditional(Token* from, P::IfStatementContext* tree, const std::string& head, int indent, bool blank) {
    put(indent, head + broken(tree->ifHead()->expr(), indent, head) + " {", blank);
    block(from, tree->block(0), indent);
    Token* end = tree->block(0)->getStop();
    if (tree->ifStatement()) return conditional(end, tree->ifStatement(), "} else if ", indent, false);
    if (tree->block().size() > 1) {
      put(indent, "} else {", false);
      block(end, tree->block(1), indent);
    }
    put(indent, "}", false);
  }

  // ---- blocks on one line

  // The statement on one line, when it was written so, has no comments and fits; else nothing.
  std::string on_one_line(ParserRuleContext* tree, int indent) {
    if (tree->getStart()->getLine() != tree->getStop()->getLine()) return "";
    const std::string text = flat(tree);
    return indent + layout::columns_of(text) <= kWidth && text.find('\n') == std::string::npos ? text : "";
  }
  std::string flat(antlr4::tree::ParseTree* tree) {
    if (auto* s = dynamic_cast<P::StatementContext*>(tree)) return flat(s->children[0]);
    if (auto* s = dynamic_cast<P::SimpleStatementContext*>(tree)) return one_line(static_cast<ParserRuleContext*>(s->children[0]));
    if (auto* s = dynamic_cast<P::TrainItemContext*>(tree)) return one_line(s);
    if (auto* s = dynamic_cast<P::ForStatementContext*>(tree)) {
      return "for " + s->forHead()->name()->getText() + " in " + one_line(s->forHead()->expr()) + " " + flat(s->block());
    }
    if (auto* s = dynamic_cast<P::IfStatementContext*>(tree)) {
      std::string text = "if " + one_line(s->ifHead()->expr()) + " " + flat(s->block(0));
      if (s->ifStatement()) text += " else " + flat(s->ifStatement());
      else if (s->block().size() > 1) text += " else " + flat(s->block(1));
      return text;
    }
    if (auto* s = dynamic_cast<P::TrainStatementContext*>(tree)) {
      return "train " + braces(std::vector<antlr4::tree::ParseTree*>(s->children.begin() + 2, s->children.end() - 1));
    }
    auto* s = dynamic_cast<P::BlockContext*>(tree);
    return braces(std::vector<antlr4::tree::ParseTree*>(s->children.begin() + 1, s->children.end() - 1));
  }
  std::string braces(const std::vector<antlr4::tree::ParseTree*>& inside) {
    std::string text;
    for (antlr4::tree::ParseTree* child : inside) text += (text.empty() ? "" : kBesideOnLine) + flat(child);
    return text.empty() ? "{ }" : "{ " + text + " }";
  }
  std::string one_line(ParserRuleContext* tree) {
    auto* e = dynamic_cast<P::ExprContext*>(tree);
    return layout::print(e ? exprs_.expr(e) : exprs_.words(tree), 1 << 20, 0, 0);
  }

  // ---- train

  void train(P::TrainStatementContext* tree, int indent, bool blank) {
    if (const std::string text = on_one_line(tree, indent); !text.empty()) return put(indent, text, blank);
    put(indent, "train {", blank);
    open_block(tree->getStart(), symbol(tree, 1), indent);
    size_t width = 0;
    for (P::TrainItemContext* item : tree->trainItem()) width = std::max(width, item->getStart()->getText().size());
    Token* before = symbol(tree, 1);
    for (P::TrainItemContext* item : tree->trainItem()) {
      const bool gap = comments(before, item->getStart(), indent + kIndent);
      setting(item, indent + kIndent, width + 2, gap);
      before = item->getStop();
    }
    comments(before, tree->getStop(), indent + kIndent);
    opened_ = false;
    put(indent, "}", false);
  }
  static Token* symbol(ParserRuleContext* tree, size_t child) {
    return dynamic_cast<antlr4::tree::TerminalNode*>(tree->children[child])->getSymbol();
  }

  // The word in a column of its own.
  void setting(P::TrainItemContext* item, int indent, size_t width, bool blank) {
    std::string head = item->getStart()->getText();
    head.resize(std::max(width, head.size() + 1), ' ');
    // Behind the word: an expression, a bare word, or `param "glob"` and what follows.
    std::vector<layout::Doc> rest;
    for (size_t i = 1; i < item->children.size(); i++) {
      if (i > 1) rest.push_back(layout::text(" "));
      auto* e = dynamic_cast<P::ExprContext*>(item->children[i]);
      rest.push_back(e ? exprs_.hanging(e, kIndent) : layout::text(item->children[i]->getText()));
    }
    const layout::Doc doc = layout::group(layout::concat(std::move(rest)));
    Line line;
    line.indent = indent;
    line.blank_before = blank;
    line.text = head + layout::print(doc, kWidth, indent, indent + static_cast<int>(head.size()));
    if (!all_placed(item)) line = verbatim(item, line);
    push(std::move(line));
  }

  // ---- columns

  // Descriptions of consecutive parameters, then comments of consecutive lines, each from one column on.
  void align() {
    each_run([](const Line& l) { return !l.description.empty(); },
             [](Line& l, size_t width) { l.description = std::string(width - width_of(l), ' ') + l.description; });
    for (Line& l : lines_) {
      l.text += l.description;
      l.description.clear();
    }
    each_run([](const Line& l) { return !l.comment.empty(); },
             [](Line& l, size_t width) { l.comment = std::string(width - width_of(l) + 2, ' ') + trimmed(l.comment); });
  }
  static size_t width_of(const Line& l) {
    const size_t last = l.text.rfind('\n');
    if (last != std::string::npos) return static_cast<size_t>(layout::columns_of(l.text.substr(last + 1)));
    return static_cast<size_t>(l.indent + layout::columns_of(l.text));
  }
  template <class Has, class Pad>
  void each_run(Has has, Pad pad) {
    for (size_t i = 0; i < lines_.size();) {
      if (!has(lines_[i])) {
        i++;
        continue;
      }
      size_t end = i + 1;
      while (end < lines_.size() && has(lines_[end]) && !lines_[end].blank_before && lines_[end].single() && lines_[end - 1].single()) end++;
      size_t width = 0;
      for (size_t k = i; k < end; k++) width = std::max(width, width_of(lines_[k]));
      for (size_t k = i; k < end; k++) pad(lines_[k], width);
      i = end;
    }
  }

  antlr4::CommonTokenStream& tokens_;
  ExprFormatter exprs_;
  std::vector<Line> lines_;
  bool opened_ = false;  // a `{` was the last thing
};

// What must not change: all words, and all comments.
std::multiset<std::string> comments_of(antlr4::CommonTokenStream& tokens) {
  std::multiset<std::string> found;
  for (Token* t : tokens.getTokens()) {
    std::string text = t->getText();
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
    if (t->getType() == PiperLexer::COMMENT) found.insert(text);
  }
  return found;
}
std::vector<std::string> words_of(antlr4::CommonTokenStream& tokens) {
  std::vector<std::string> words;
  for (Token* t : tokens.getTokens()) {
    if (t->getChannel() != Token::DEFAULT_CHANNEL || t->getType() == Token::EOF) continue;
    const std::string text = t->getText();
    if ((text == "]" || text == ")") && !words.empty() && words.back() == ",") words.pop_back();  // a trailing comma goes
    words.push_back(text);
  }
  return words;
}

bool same_program(antlr4::CommonTokenStream& before, const std::string& formatted) {
  antlr4::ANTLRInputStream input(formatted);
  PiperLexer lexer(&input);
  lexer.removeErrorListeners();
  antlr4::CommonTokenStream after(&lexer);
  after.fill();
  return words_of(before) == words_of(after) && comments_of(before) == comments_of(after);
}

}  // namespace

std::optional<std::string> format_file(int32_t file, support::Diagnostics& diagnostics) {
  std::optional<std::string> out;
  run_on_big_stack([&] {
    visit_tree(file, diagnostics, [&](P::FileContext* tree, antlr4::CommonTokenStream& tokens) {
      out = Formatter(tokens).run(tree);
      PIPER_CHECK(same_program(tokens, *out), "formatting changed the program");
    });
  });
  return out;
}

}  // namespace piper::frontend
