// The border to ANTLR: lexes, parses, recovers statement by statement; parse_tree.cpp makes the plain AST.
// A file is first parsed as a whole by rule `file`; only when that fails is it walked again one statement at a time,
// to report every mistake. Enter at parse_file, at the end.
#include "frontend/piper/parse.h"

#include <algorithm>

#include "frontend/piper/parse_tree.h"
#include "frontend/piper/syntax_help.h"

namespace piper::frontend {

using support::Code;
using support::Diagnostics;
using support::SourceSpan;
using P = PiperParser;

namespace {

// Thrown by the error strategy out of ANTLR's rule functions, caught in this file.
struct SyntaxStop {
  antlr4::Token* token;
  std::vector<size_t> expected;
  bool in_expression;
};

// Stops at the first mistake; the caller decides where to go on. Never repairs, never prints.
class StopAtError : public antlr4::DefaultErrorStrategy {
 public:
  void reportError(antlr4::Parser*, const antlr4::RecognitionException&) override {}
  void sync(antlr4::Parser*) override {}
  void recover(antlr4::Parser* parser, std::exception_ptr e) override {
    try {
      std::rethrow_exception(e);
    } catch (antlr4::RecognitionException& mistake) {
      stop(parser, mistake.getOffendingToken());
    }
  }
  antlr4::Token* recoverInline(antlr4::Parser* parser) override {
    stop(parser, parser->getCurrentToken());
    return nullptr;
  }

 private:
  [[noreturn]] void stop(antlr4::Parser* parser, antlr4::Token* token) {
    SyntaxStop mistake{token, {}, false};
    antlr4::ParserRuleContext* context = parser->getContext();
    mistake.in_expression = context && context->getRuleIndex() == P::RuleExpr;
    // What may come is only certain when the mistake is where the parser stands.
    if (token == parser->getCurrentToken()) {
      for (ssize_t t : parser->getExpectedTokens().toList()) {
        if (t > 0) mistake.expected.push_back(static_cast<size_t>(t));
      }
    }
    throw mistake;
  }
};

class Text {
 public:
  Text(int32_t file, Diagnostics& diagnostics) : diagnostics_(diagnostics), builder_(file, diagnostics) {
    input_ = std::make_unique<antlr4::ANTLRInputStream>(diagnostics.sources().text(file));
    lexer_ = std::make_unique<PiperLexer>(input_.get());
    lexer_->removeErrorListeners();
    tokens_ = std::make_unique<antlr4::CommonTokenStream>(lexer_.get());
    tokens_->fill();
    parser_ = std::make_unique<P>(tokens_.get());
    parser_->removeErrorListeners();
    parser_->setErrorHandler(std::make_shared<StopAtError>());
  }

  P& parser() { return *parser_; }
  antlr4::CommonTokenStream& tokens() { return *tokens_; }
  Diagnostics& diagnostics() { return diagnostics_; }

  TreeBuilder& builder() { return builder_; }
  SourceSpan span(antlr4::Token* token) const { return builder_.span(token); }

  // Mistakes below the grammar: characters, numbers, strings, brackets, nesting.
  bool check_tokens();

 private:
  Diagnostics& diagnostics_;
  TreeBuilder builder_;
  std::unique_ptr<antlr4::ANTLRInputStream> input_;
  std::unique_ptr<PiperLexer> lexer_;
  std::unique_ptr<antlr4::CommonTokenStream> tokens_;
  std::unique_ptr<P> parser_;
};

std::string literal_text(size_t type) {
  std::string text = PiperLexer(nullptr).getVocabulary().getLiteralName(type);
  if (text.size() > 2) return "`" + text.substr(1, text.size() - 2) + "`";
  switch (type) {
    case P::ID: return "a name";
    case P::STRING: return "a string";
    case P::PASS: return "a pass";
    default: return "a number";
  }
}

std::string found_text(antlr4::Token* token) {
  if (token->getType() == antlr4::Token::EOF) return "the end of the file";
  std::string text = token->getText();
  return "`" + (text.size() > 40 ? text.substr(0, 40) + "..." : text) + "`";
}

bool Text::check_tokens() {
  bool good = true;
  int words = 0;
  std::vector<antlr4::Token*> open;
  auto report = [&](Code code, antlr4::Token* token, std::string message) -> support::Diagnostic& {
    good = false;
    return diagnostics_.report(code, span(token), std::move(message));
  };
  auto closes = [](const std::string& a, const std::string& b) {
    return (a == "(" && b == ")") || (a == "[" && b == "]") || (a == "{" && b == "}");
  };
  antlr4::Token* bad = nullptr;
  for (antlr4::Token* token : tokens_->getTokens()) {
    if (token->getChannel() != antlr4::Token::DEFAULT_CHANNEL) continue;
    std::string text = token->getText();
    switch (token->getType()) {
      case P::BAD_CHARACTER:
        if (bad && bad->getTokenIndex() + 1 == token->getTokenIndex()) break;  // one message for a run of them
        report(Code::E0102, token, "this character has no meaning here");
        break;
      case P::BAD_NUMBER:
        report(Code::E0102, token, "`" + text + "` is not a number")
            .help("sizes end in B, KB, MB, GB, KiB, MiB or GiB; names do not start with a digit");
        break;
      case P::OPEN_STRING: report(Code::E0103, token, "this string has no end").help("close it with `\"` on the same line"); break;
      default: break;
    }
    bad = token->getType() == P::BAD_CHARACTER ? token : nullptr;
    if (text == "(" || text == "[" || text == "{") {
      open.push_back(token);
      if (open.size() > kMaxBrackets) {
        report(Code::E0103, token, "brackets are nested more than " + std::to_string(kMaxBrackets) + " deep");
        return false;
      }
    } else if (text == ")" || text == "]" || text == "}") {
      if (!open.empty() && closes(open.back()->getText(), text)) open.pop_back();
    }
    // A chain of `-`, `not`, `if`, `let`, `assert` nests without brackets; other statement words start anew.
    switch (token->getType()) {
      case P::IF: case P::LET: case P::ASSERT: case P::NOT: case P::ELSE: words++; break;
      case P::PLACE: case P::TAG: case P::FN: case P::ORDER: case P::MESH: case P::USE: words = 0; break;
      default: words += text == "-" ? 1 : 0;
    }
    if (words > kMaxDepth) {
      report(Code::E0103, token, "an expression is nested more than " + std::to_string(kMaxDepth) + " deep");
      return false;
    }
  }
  return good;
}

// ---- errors and recovery

// Walks a file with mistakes statement by statement; reports each and goes on behind it.
class Recovery {
 public:
  explicit Recovery(Text& text) : text_(text), parser_(text.parser()) {}

  void run() {
    text_.tokens().seek(0);
    parser_.reset();
    statements(0);
  }

  void report(const SyntaxStop& mistake, antlr4::Token* start) {
    antlr4::Token* token = mistake.token;
    std::string found = found_text(token), keyword = start ? start->getText() : "";
    std::string message;
    if (mistake.in_expression || mistake.expected.size() > 6) {
      message = mistake.expected.empty() ? "unexpected " + found : "expected an expression, found " + found;
    } else if (!mistake.expected.empty()) {
      message = "expected ";
      for (size_t i = 0; i < mistake.expected.size(); i++) {
        message += (i == 0 ? "" : i + 1 < mistake.expected.size() ? ", " : " or ") + literal_text(mistake.expected[i]);
      }
      message += ", found " + found;
    } else {
      message = "unexpected " + found;
    }
    // A list of names may hold any clause word: the vocabulary says "expected a name" instead.
    bool wants_name = std::find(mistake.expected.begin(), mistake.expected.end(), size_t{P::ID}) != mistake.expected.end();
    if (wants_name && std::find(mistake.expected.begin(), mistake.expected.end(), size_t{P::INT}) == mistake.expected.end()) {
      message = "expected a name, found " + found;
    }
    auto& d = text_.diagnostics().report(Code::E0101, text_.span(token), message);
    std::string word = token->getText();
    if (wants_name && is_reserved(word)) {
      d.help("`" + word + "` is a reserved word; use another name");
    } else {
      std::string meant = support::did_you_mean(word, clause_words(keyword));
      if (!meant.empty()) d.help("did you mean `" + meant + "`?");
    }
    if (std::string form(statement_form(keyword)); !form.empty()) d.help("it is written `" + form + "`");
  }

 private:
  using Start = antlr4::Token;
  size_t next() { return text_.tokens().LA(1); }
  static bool starts_statement(size_t type) {
    switch (type) {
      case P::USE: case P::PARAM: case P::LET: case P::FN: case P::MESH: case P::DIM: case P::TAG: case P::PLACE:
      case P::REPLICATE: case P::SHARD: case P::SPLIT: case P::ORDER: case P::RECOMPUTE: case P::STREAM: case P::FREEZE:
      case P::TIE: case P::ASSERT: case P::FOR: case P::IF: case P::TRAIN: return true;
      default: return false;
    }
  }
  bool next_is(const char* text) {
    return next() != antlr4::Token::EOF && text_.tokens().LT(1)->getText() == text;
  }
  // The next token is a mistake. Goes on to the next statement; a `{` that is skipped opens a block of statements.
  void skip(int depth) {
    int brackets = 0;
    size_t last_line = text_.tokens().LT(1)->getLine();
    for (bool first = true; next() != antlr4::Token::EOF; first = false) {
      antlr4::Token* token = text_.tokens().LT(1);
      std::string text = token->getText();
      // Some statement words also stand inside expressions: there they count only at the start of a line.
      bool inner = next() == P::IF || next() == P::FOR || next() == P::LET || next() == P::ASSERT || next() == P::PARAM ||
                   next() == P::DIM;
      bool new_line = token->getLine() > last_line;
      if (!first && starts_statement(next()) && (new_line || (!inner && brackets == 0))) return;
      if (text == "}" && depth > 0 && !first) return;
      if (text == "(" || text == "[") brackets++;
      if (text == ")" || text == "]") brackets = std::max(0, brackets - 1);
      last_line = token->getLine();
      text_.tokens().consume();
      if (text == "{") {
        body(depth + 1);
        return;
      }
    }
  }

  void body(int depth) {
    statements(depth);
    if (next_is("}")) text_.tokens().consume();
  }

  template <class Rule>
  bool attempt(antlr4::Token* start, int depth, Rule rule) {
    try {
      rule();
      return true;
    } catch (const SyntaxStop& mistake) {
      // A statement that ends where the next begins is reported, but the next is not skipped.
      report(mistake, start);
      size_t at = mistake.token->getTokenIndex();
      if (text_.tokens().index() < at) text_.tokens().seek(at);
      if (!(starts_statement(next()) && text_.tokens().LT(1) != start) && !(next_is("}") && depth > 0)) skip(depth);
      return false;
    }
  }

  void block(int depth, const char* what) {
    if (next_is("{")) {
      text_.tokens().consume();
      body(depth + 1);
      return;
    }
    text_.diagnostics()
        .report(Code::E0101, text_.span(text_.tokens().LT(1)),
                std::string("expected `{` after `") + what + "`, found " + found_text(text_.tokens().LT(1)));
    if (!starts_statement(next()) && !next_is("}")) skip(depth);
  }

  void statements(int depth) {
    antlr4::Token* previous = nullptr;
    while (next() != antlr4::Token::EOF) {
      antlr4::Token* start = text_.tokens().LT(1);
      if (next_is("}") && depth > 0) return;
      parser_.setContext(nullptr);
      switch (next()) {
        case P::FOR:
          if (attempt(start, depth, [&] { parser_.forHead(); })) block(depth, "for");
          break;
        case P::IF: if_statement(depth); break;
        case P::TRAIN:
          text_.tokens().consume();
          train();
          break;
        default:
          if (starts_statement(next())) {
            attempt(start, depth, [&] { parser_.simpleStatement(); });
          } else {
            stray(start, previous, depth);
          }
      }
      previous = start;
    }
    if (depth > 0 && !eof_reported_) {
      eof_reported_ = true;
      text_.diagnostics().report(Code::E0101, text_.span(text_.tokens().LT(1)), "a block is not closed before the end of the file")
          .help("add `}`");
    }
  }

  void if_statement(int depth) {
    antlr4::Token* start = text_.tokens().LT(1);
    if (!attempt(start, depth, [&] { parser_.ifHead(); })) return;
    block(depth, "if");
    if (next() != P::ELSE) return;
    text_.tokens().consume();
    if (next() == P::IF) {
      if_statement(depth);
    } else {
      block(depth, "else");
    }
  }

  // A token that starts no statement: a misspelt keyword, or a clause the statement before does not have.
  void stray(antlr4::Token* token, antlr4::Token* previous, int depth) {
    std::string word = token->getText();
    auto& d = text_.diagnostics().report(Code::E0101, text_.span(token), "expected a statement, found " + found_text(token));
    std::string keyword = previous ? previous->getText() : "";
    std::string statement = support::did_you_mean(word, statement_words());
    std::string clause = support::did_you_mean(word, clause_words(keyword));
    if (!clause.empty()) {
      d.message = "unexpected " + found_text(token) + " after `" + keyword + "`";
      d.help("did you mean `" + clause + "`?");
    } else if (!statement.empty()) {
      d.help("did you mean `" + statement + "`?");
    } else if (!statement_form(keyword).empty()) {
      d.help("`" + keyword + "` is written `" + std::string(statement_form(keyword)) + "`");
    }
    skip(depth);
  }

  // The lines of `train { }`; a mistake skips to the next word that can start one.
  void train() {
    if (!next_is("{")) {
      text_.diagnostics().report(Code::E0101, text_.span(text_.tokens().LT(1)),
                                 "expected `{` after `train`, found " + found_text(text_.tokens().LT(1)));
      return;
    }
    text_.tokens().consume();
    while (next() != antlr4::Token::EOF && !next_is("}")) {
      antlr4::Token* start = text_.tokens().LT(1);
      if (starts_statement(next())) break;
      parser_.setContext(nullptr);
      if (!is_setting(start->getText())) {
        auto& d = text_.diagnostics().report(Code::E0101, text_.span(start), found_text(start) + " is not a setting of `train`");
        std::string meant = support::did_you_mean(start->getText(), setting_words());
        if (!meant.empty()) d.help("did you mean `" + meant + "`?");
        skip_setting(start);
        continue;
      }
      try {
        parser_.trainItem();
      } catch (const SyntaxStop& mistake) {
        report(mistake, nullptr);
        skip_setting(start);
      }
    }
    if (next_is("}")) {
      text_.tokens().consume();
    } else {
      text_.diagnostics().report(Code::E0101, text_.span(text_.tokens().LT(1)), "`train {` is not closed").help("add `}`");
    }
  }

  static bool is_setting(const std::string& word) {
    return std::find(setting_words().begin(), setting_words().end(), word) != setting_words().end();
  }
  void skip_setting(antlr4::Token* start) {
    while (next() != antlr4::Token::EOF && !next_is("}")) {
      antlr4::Token* token = text_.tokens().LT(1);
      if (token->getLine() > start->getLine() && (is_setting(token->getText()) || starts_statement(next()))) return;
      if (token->getLine() > start->getLine() + 1) return;
      text_.tokens().consume();
    }
  }

  Text& text_;
  P& parser_;
  bool eof_reported_ = false;
};

}  // namespace

namespace {

// Parses with `rule` and builds with `build`; nothing when there was any mistake, which `report` has told.
template <class Build, class Report>
auto parse_with(int32_t file, Diagnostics& diagnostics, Build build, Report report) -> std::optional<decltype(build(std::declval<Text&>()))> {
  int before = diagnostics.error_count();
  if (!check_text(file, diagnostics)) return std::nullopt;
  Text text(file, diagnostics);
  if (!text.check_tokens()) return std::nullopt;
  try {
    auto result = build(text);
    if (diagnostics.error_count() == before) return result;
  } catch (const SyntaxStop& mistake) {
    report(text, mistake);
  }
  return std::nullopt;
}

void report_one(Text& text, const SyntaxStop& mistake) { Recovery(text).report(mistake, nullptr); }

}  // namespace

std::optional<ast::File> parse_file(int32_t file, Diagnostics& diagnostics) {
  auto build = [](Text& text) {
    ast::File tree;
    for (P::StatementContext* s : text.parser().file()->statement()) tree.statements.push_back(text.builder().statement(s));
    return tree;
  };
  return parse_with(file, diagnostics, build, [&](Text& text, const SyntaxStop& mistake) {
    int before = diagnostics.error_count();
    Recovery(text).run();
    // Recovery finds what stopped the parser; should it not, say at least where that was.
    if (diagnostics.error_count() == before) report_one(text, mistake);
  });
}

ast::ExprPtr parse_expression(int32_t file, Diagnostics& diagnostics) {
  auto build = [](Text& text) { return text.builder().expr(text.parser().expression()->expr()); };
  auto e = parse_with(file, diagnostics, build, report_one);
  return e ? std::move(*e) : nullptr;
}

std::optional<ast::TrainItem> parse_setting(int32_t file, Diagnostics& diagnostics) {
  auto build = [](Text& text) { return text.builder().train_item(text.parser().setting()->trainItem()); };
  return parse_with(file, diagnostics, build, report_one);
}

}  // namespace piper::frontend
