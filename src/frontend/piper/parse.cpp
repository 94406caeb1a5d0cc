// The border to ANTLR: lexes, parses, recovers statement by statement; parse_tree.cpp makes the plain AST.
// A file is first parsed as a whole by rule `file`; only when that fails is it walked again one statement at a time,
// to report every mistake. Enter at parse_file, at the end.
#include "frontend/piper/parse.h"

#include <algorithm>
#include <cctype>
#include <set>

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
  std::vector<size_t> expected;  // empty when it is not certain
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
    SyntaxStop mistake{token, {}};
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

  // Mistakes below the grammar: characters, numbers, strings, nesting. False when it is no use to go on.
  bool check_tokens();
  bool is_bad_line(size_t line) const { return bad_lines_.count(line) > 0; }

 private:
  Diagnostics& diagnostics_;
  TreeBuilder builder_;
  std::set<size_t> bad_lines_;  // with malformed tokens: what the parser says of them would only confuse
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

// Whether an expression may end with the token.
bool ends_value(antlr4::Token* token) {
  std::string text = token->getText();
  if (text == ")" || text == "]" || text == "}" || text == "true" || text == "false") return true;
  return text.back() == '"' || (std::isalnum(static_cast<unsigned char>(text.back())) && !is_reserved(text));
}

bool Text::check_tokens() {
  int words = 0;
  std::vector<antlr4::Token*> open;
  auto report = [&](Code code, antlr4::Token* token, std::string message) -> support::Diagnostic& {
    bad_lines_.insert(token->getLine());
    return diagnostics_.report(code, span(token), std::move(message));
  };
  auto closes = [](const std::string& a, const std::string& b) {
    return (a == "(" && b == ")") || (a == "[" && b == "]") || (a == "{" && b == "}");
  };
  antlr4::Token *bad = nullptr, *previous = nullptr;
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
      case P::OPEN_STRING: report(Code::E0102, token, "this string has no end").help("close it with `\"` on the same line"); break;
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
    // A chain of prefix words nests without brackets. A word behind a complete expression starts a statement.
    bool starts = !previous || ends_value(previous);
    switch (token->getType()) {
      case P::IF: case P::LET: case P::ASSERT: words = starts ? 0 : words + 1; break;
      case P::NOT: case P::ELSE: words++; break;
      case P::PLACE: case P::TAG: case P::FN: case P::ORDER: case P::MESH: case P::USE: words = 0; break;
      default: words += text == "-" && !starts ? 1 : 0;
    }
    previous = token;
    if (words > kMaxDepth) {
      report(Code::E0103, token, "an expression is nested more than " + std::to_string(kMaxDepth) + " deep");
      return false;
    }
  }
  // What stands for the malformed token lets the rest of the file be read.
  for (antlr4::Token* token : tokens_->getTokens()) {
    auto* writable = dynamic_cast<antlr4::WritableToken*>(token);
    if (token->getType() == P::BAD_NUMBER) writable->setType(P::INT);
    if (token->getType() == P::OPEN_STRING) writable->setType(P::STRING);
    if (token->getType() == P::BAD_CHARACTER) writable->setChannel(antlr4::Token::HIDDEN_CHANNEL);
  }
  tokens_->seek(0);
  return true;
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
    for (size_t line = start ? start->getLine() : token->getLine(); line <= token->getLine(); line++) {
      if (text_.is_bad_line(line)) return;
    }
    std::string found = found_text(token), keyword = start ? start->getText() : "";
    bool wants_name = false;
    std::string message = "expected " + expectation(mistake.expected, &wants_name) + ", found " + found;
    if (message.starts_with("expected ,")) message = "unexpected " + found;
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
  // "an expression", "`,` or `]`"; empty when so many tokens may come that no list helps.
  static std::string expectation(const std::vector<size_t>& expected, bool* wants_name) {
    auto has = [&](size_t type) { return std::find(expected.begin(), expected.end(), type) != expected.end(); };
    if (has(P::INT)) return "an expression";
    *wants_name = has(P::ID);
    if (*wants_name) return "a name";  // any clause word may be one, which no one wants to read
    // After a complete operand an operator may always follow.
    static const std::set<std::string> kOperators = {"`*`", "`/`", "`%`", "`+`", "`-`", "`..`", "`==`", "`!=`", "`<`", "`<=`",
                                                     "`>`", "`>=`", "`and`", "`or`", "`++`", "`|`", "`[`"};
    std::vector<std::string> texts;
    for (size_t type : expected) {
      std::string text = literal_text(type);
      if (!kOperators.count(text) || expected.size() == 1) texts.push_back(text);
    }
    constexpr size_t kMost = 5;
    if (texts.size() > kMost) return "";
    std::string list;
    for (size_t i = 0; i < texts.size(); i++) list += (i == 0 ? "" : i + 1 < texts.size() ? ", " : " or ") + texts[i];
    return list;
  }

  size_t next() { return text_.tokens().LA(1); }
  static bool starts_statement(size_t type) {
    switch (type) {
      case P::USE: case P::PARAM: case P::LET: case P::FN: case P::MESH: case P::DIM: case P::TAG: case P::PLACE:
      case P::REPLICATE: case P::SHARD: case P::SPLIT: case P::ORDER: case P::RECOMPUTE: case P::STREAM: case P::FREEZE:
      case P::TIE: case P::TREAT: case P::ASSERT: case P::FOR: case P::IF: case P::TRAIN: return true;
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
      SyntaxStop first = mistake;
      if (antlr4::Token* taken = taken_for_expression(start, mistake)) first = {taken, {P::INT}};
      report(first, start);
      text_.tokens().seek(first.token->getTokenIndex());
      // A statement that stops where the next begins does not take the next with it.
      bool next_begins = starts_statement(next()) && first.token != start && begins_line(first.token);
      if (!next_begins && !(next_is("}") && depth > 0)) skip(depth);
      return false;
    }
  }

  bool begins_line(antlr4::Token* token) {
    for (size_t i = token->getTokenIndex(); i > 0; i--) {
      antlr4::Token* before = text_.tokens().get(i - 1);
      if (before->getChannel() == antlr4::Token::DEFAULT_CHANNEL) return before->getLine() < token->getLine();
    }
    return true;
  }

  // `let a = 1 +` and on the next line `let b = 2`: the second `let` was read as part of the expression, until its `in`
  // was missed. That `let` is then the mistake.
  antlr4::Token* taken_for_expression(antlr4::Token* start, const SyntaxStop& mistake) {
    if (std::find(mistake.expected.begin(), mistake.expected.end(), size_t{P::IN}) == mistake.expected.end()) return nullptr;
    for (size_t i = mistake.token->getTokenIndex(); i > start->getTokenIndex() + 1; i--) {
      antlr4::Token* token = text_.tokens().get(i - 1);
      bool word = token->getType() == P::LET || token->getType() == P::ASSERT;
      if (word && begins_line(token)) return token;
    }
    return nullptr;
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
    if (text_.is_bad_line(token->getLine())) return skip(depth);
    auto& d = text_.diagnostics().report(Code::E0101, text_.span(token), "expected a statement, found " + found_text(token));
    if (word == ".") d.help("a float has digits on both sides of its dot");
    std::string keyword = previous ? previous->getText() : "";
    std::string statement = support::did_you_mean(word, statement_words());
    std::string clause = support::did_you_mean(word, clause_words(keyword));
    if (!clause.empty()) {
      d.message = "unexpected " + found_text(token) + " after `" + keyword + "`";
      d.help("did you mean `" + clause + "`?");
    } else if (!statement.empty()) {
      d.help("did you mean `" + statement + "`?");
    } else if (word != "." && !statement_form(keyword).empty()) {
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
        if (text_.is_bad_line(start->getLine())) {
          skip_setting(start);
          continue;
        }
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
    int brackets = 0;
    while (next() != antlr4::Token::EOF && !next_is("}")) {
      antlr4::Token* token = text_.tokens().LT(1);
      std::string text = token->getText();
      bool clear = brackets == 0 || is_setting(text) || starts_statement(next());
      if (token->getLine() > start->getLine() && clear) return;
      if (text == "(" || text == "[") brackets++;
      if (text == ")" || text == "]") brackets = std::max(0, brackets - 1);
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

namespace {

void report_all(Text& text, const SyntaxStop& mistake) {
  const int before = text.diagnostics().error_count();
  Recovery(text).run();
  // Recovery finds what stopped the parser; should it not, say at least where that was.
  if (text.diagnostics().error_count() == before) report_one(text, mistake);
}

}  // namespace

bool visit_tree(int32_t file, Diagnostics& diagnostics, const std::function<void(P::FileContext*, antlr4::CommonTokenStream&)>& visit) {
  auto build = [&](Text& text) {
    P::FileContext* tree = text.parser().file();
    // Escapes and numbers are checked where the plain tree is made.
    const int before = diagnostics.error_count();
    for (P::StatementContext* s : tree->statement()) text.builder().statement(s);
    if (diagnostics.error_count() == before) visit(tree, text.tokens());
    return true;
  };
  return parse_with(file, diagnostics, build, report_all).has_value();
}

std::optional<ast::File> parse_file(int32_t file, Diagnostics& diagnostics) {
  auto build = [](Text& text) {
    ast::File tree;
    for (P::StatementContext* s : text.parser().file()->statement()) tree.statements.push_back(text.builder().statement(s));
    for (const antlr4::Token* token : text.tokens().getTokens()) {
      if (token->getChannel() == antlr4::Token::DEFAULT_CHANNEL) tree.words[token->getText()]++;
    }
    return tree;
  };
  return parse_with(file, diagnostics, build, report_all);
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
