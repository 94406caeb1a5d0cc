#include "frontend/piper/parse_tree.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "frontend/piper/parse.h"

namespace piper::frontend {

using ast::Expr;
using ast::ExprPtr;
using support::Code;
using support::SourceSpan;
using P = PiperParser;

TreeBuilder::TreeBuilder(int32_t file, support::Diagnostics& diagnostics) : file_(file), diagnostics_(diagnostics) {
  const std::string& text = diagnostics.sources().text(file);
  // ANTLR drops a byte order mark, so positions start behind it.
  for (size_t i = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) bytes_.push_back(static_cast<int32_t>(i));
  }
  bytes_.push_back(static_cast<int32_t>(text.size()));
}

SourceSpan TreeBuilder::span(const antlr4::Token* token) const {
  const size_t last = bytes_.size() - 1;
  const size_t begin = std::min(token->getStartIndex(), last);
  if (token->getType() == antlr4::Token::EOF) return {file_, bytes_[last], bytes_[last]};
  return {file_, bytes_[begin], bytes_[std::min(token->getStopIndex() + 1, last)]};
}

SourceSpan TreeBuilder::span(antlr4::ParserRuleContext* tree) const {
  return {file_, span(tree->getStart()).begin, span(tree->getStop()).end};
}

ast::Name TreeBuilder::name(P::NameContext* tree) const { return {tree->getText(), span(tree)}; }
ast::Name TreeBuilder::word(antlr4::tree::TerminalNode* token) const { return {token->getText(), span(token->getSymbol())}; }

std::string TreeBuilder::unescape(const antlr4::Token* token) {
  const std::string text = token->getText();
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    ++i;
    if (text[i] != '"' && text[i] != '\\') {
      diagnostics_.report(Code::E0102, span(token), fmt::format("`\\{}` is not an escape", text[i])).help("a string knows `\\\"` and `\\\\`");
    }
    out += text[i];
  }
  return out;
}

ast::StringAt TreeBuilder::string(antlr4::tree::TerminalNode* token) { return {unescape(token->getSymbol()), span(token->getSymbol())}; }

ExprPtr TreeBuilder::make(Expr::Kind kind, antlr4::ParserRuleContext* tree) const {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->span = span(tree);
  return e;
}

void TreeBuilder::number(const std::string& text, SourceSpan at, Expr& out) {
  errno = 0;
  out.kind = Expr::Kind::kInt;
  out.integer = std::strtoll(text.c_str(), nullptr, 10);
  if (errno == ERANGE) {
    diagnostics_.report(Code::E0102, at, "this integer does not fit 64 bits").note(fmt::format("the largest is {}", std::numeric_limits<int64_t>::max()));
  }
}

void TreeBuilder::size(const std::string& text, SourceSpan at, Expr& out) {
  static const std::map<std::string, double> kUnits{{"B", 1},         {"KB", 1e3},          {"MB", 1e6},         {"GB", 1e9},
                                                    {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  const size_t unit = text.find_first_not_of("0123456789.");
  const double bytes = std::strtod(text.c_str(), nullptr) * kUnits.at(text.substr(unit));
  out.kind = Expr::Kind::kSize;
  if (bytes != std::floor(bytes) || bytes > 9e18) {
    diagnostics_.report(Code::E0102, at, bytes > 9e18 ? "this size does not fit 64 bits" : "this size is not a whole number of bytes");
    return;
  }
  out.integer = static_cast<int64_t>(bytes);
}

void TreeBuilder::literal(antlr4::Token* token, Expr& out) {
  const std::string text = token->getText();
  switch (token->getType()) {
    case P::INT: return number(text, span(token), out);
    case P::SIZE: return size(text, span(token), out);
    case P::FLOAT:
      out.kind = Expr::Kind::kFloat;
      out.number = std::strtod(text.c_str(), nullptr);
      if (!std::isfinite(out.number)) diagnostics_.report(Code::E0102, span(token), "this number is too large");
      return;
    case P::STRING:
      out.kind = Expr::Kind::kString;
      out.text = unescape(token);
      return;
    default:
      out.kind = Expr::Kind::kBool;
      out.integer = token->getType() == P::TRUE;
  }
}

std::vector<ast::Binding> TreeBuilder::bindings(const std::vector<P::BindingContext*>& trees) {
  std::vector<ast::Binding> out;
  for (P::BindingContext* b : trees) out.push_back({name(b->name()), expr(b->expr())});
  return out;
}

ast::TagConstraint TreeBuilder::constraint(P::ConstraintContext* tree) {
  ast::TagConstraint c;
  c.tag = name(tree->name());
  if (tree->expr()) c.value = expr(tree->expr());
  else c.present = tree->getStop()->getText() == "*";
  return c;
}

namespace {

ast::Op binary_op(const std::string& text) {
  static const std::map<std::string, ast::Op> kOps{
      {"*", ast::Op::kMul}, {"/", ast::Op::kDiv}, {"%", ast::Op::kMod},    {"+", ast::Op::kAdd},     {"-", ast::Op::kSub},
      {"..", ast::Op::kRange}, {"==", ast::Op::kEq}, {"!=", ast::Op::kNe}, {"<", ast::Op::kLt},      {"<=", ast::Op::kLe},
      {">", ast::Op::kGt},  {">=", ast::Op::kGe}, {"and", ast::Op::kAnd},  {"or", ast::Op::kOr},     {"++", ast::Op::kConcat},
      {"|", ast::Op::kOverlap}};
  return kOps.at(text);
}

ast::MatchKind match_kind(const std::string& text) {
  static const std::map<std::string, ast::MatchKind> kKinds{
      {"path", ast::MatchKind::kPath},   {"name", ast::MatchKind::kName},   {"op", ast::MatchKind::kOp},
      {"param", ast::MatchKind::kParam}, {"input", ast::MatchKind::kInput}, {"output", ast::MatchKind::kOutput}};
  return kKinds.at(text);
}

bool is_comparison(ast::Op op) { return op >= ast::Op::kEq && op <= ast::Op::kGe; }

}  // namespace

ExprPtr TreeBuilder::expr(P::ExprContext* tree) {
  // A long chain of operators nests to the left without brackets; everything later walks the tree by recursion.
  if (depth_ >= kMaxDepth) {
    if (depth_ == kMaxDepth) {
      diagnostics_.report(Code::E0103, span(tree), fmt::format("an expression is nested more than {} deep", kMaxDepth))
          .help("name parts of it with `let`");
      depth_++;
    }
    return make(Expr::Kind::kInt, tree);
  }
  depth_++;
  ExprPtr e = nested(tree);
  // Past the limit the count stays, so that it is reported once.
  if (depth_ <= kMaxDepth) depth_--;
  return e;
}

ExprPtr TreeBuilder::nested(P::ExprContext* tree) {
  using Kind = Expr::Kind;
  auto with_children = [&](Kind kind, const std::vector<P::ExprContext*>& children) {
    ExprPtr e = make(kind, tree);
    for (P::ExprContext* c : children) e->children.push_back(expr(c));
    return e;
  };
  if (auto* t = dynamic_cast<P::LiteralContext*>(tree)) {
    ExprPtr e = make(Kind::kInt, t);
    literal(t->getStart(), *e);
    return e;
  }
  if (auto* t = dynamic_cast<P::VariableContext*>(tree)) {
    ExprPtr e = make(Kind::kName, t);
    e->text = t->getText();
    return e;
  }
  if (auto* t = dynamic_cast<P::GroupContext*>(tree)) {
    ExprPtr e = expr(t->expr());
    e->parenthesised = true;
    return e;
  }
  if (auto* t = dynamic_cast<P::BinaryContext*>(tree)) {
    ExprPtr e = with_children(Kind::kBinary, t->expr());
    e->op = binary_op(t->children[1]->getText());
    const Expr& left = *e->children[0];
    bool chained = left.kind == Kind::kBinary && is_comparison(left.op) && !left.parenthesised;
    if (is_comparison(e->op) && chained) {
      diagnostics_.report(Code::E0101, e->span, "comparisons do not chain").help("write `a < b and b < c`");
    }
    return e;
  }
  if (auto* t = dynamic_cast<P::IndexContext*>(tree)) return with_children(Kind::kIndex, t->expr());
  if (auto* t = dynamic_cast<P::ListContext*>(tree)) return with_children(Kind::kList, t->expr());
  if (auto* t = dynamic_cast<P::IfElseContext*>(tree)) return with_children(Kind::kIf, t->expr());
  if (auto* t = dynamic_cast<P::AssertInContext*>(tree)) return with_children(Kind::kAssert, t->expr());
  if (auto* t = dynamic_cast<P::NegateContext*>(tree)) {
    ExprPtr e = with_children(Kind::kUnary, {t->expr()});
    e->op = ast::Op::kNeg;
    return e;
  }
  if (auto* t = dynamic_cast<P::InvertContext*>(tree)) {
    ExprPtr e = with_children(Kind::kUnary, {t->expr()});
    e->op = ast::Op::kNot;
    return e;
  }
  if (auto* t = dynamic_cast<P::LetInContext*>(tree)) {
    ExprPtr e = with_children(Kind::kLet, t->expr());
    e->text = t->name()->getText();
    return e;
  }
  if (auto* t = dynamic_cast<P::MatchContext*>(tree)) {
    ExprPtr e = make(Kind::kMatch, t);
    e->match = match_kind(t->getStart()->getText());
    ExprPtr pattern = std::make_unique<Expr>();
    pattern->span = span(t->getStop());
    pattern->kind = t->STRING() ? Kind::kString : Kind::kName;
    pattern->text = t->STRING() ? unescape(t->STRING()->getSymbol()) : t->name()->getText();
    e->children.push_back(std::move(pattern));
    return e;
  }
  if (auto* t = dynamic_cast<P::HasContext*>(tree)) {
    ExprPtr e = make(Kind::kHas, t);
    e->text = t->name()->getText();
    return e;
  }
  if (auto* t = dynamic_cast<P::SelectorContext*>(tree)) {
    ExprPtr e = make(Kind::kSelector, t);
    e->text = t->getStart()->getText();
    for (P::ConstraintContext* c : t->constraint()) e->constraints.push_back(constraint(c));
    return e;
  }
  if (auto* t = dynamic_cast<P::DevicesContext*>(tree)) {
    ExprPtr e = make(Kind::kDevices, t);
    e->text = t->name()->getText();
    e->bindings = bindings(t->binding());
    return e;
  }
  if (auto* t = dynamic_cast<P::CallContext*>(tree)) {
    ExprPtr e = make(Kind::kCall, t);
    const auto names = t->name();
    e->text = names.back()->getText();
    if (names.size() == 2) e->module = name(names.front());
    for (P::ArgumentContext* a : t->argument()) {
      e->bindings.push_back({a->name() ? name(a->name()) : ast::Name{}, expr(a->expr())});
    }
    return e;
  }
  auto* t = dynamic_cast<P::ListOfContext*>(tree);
  ExprPtr e = make(Kind::kComprehension, tree);
  e->children.push_back(expr(t->expr()));
  for (P::ComprehensionContext* c : t->comprehension()) {
    ast::Loop loop;
    loop.name = name(c->name());
    const auto parts = c->expr();
    loop.list = expr(parts.front());
    for (size_t i = 1; i < parts.size(); ++i) loop.conditions.push_back(expr(parts[i]));
    e->loops.push_back(std::move(loop));
  }
  return e;
}

ast::Clause TreeBuilder::clause(antlr4::ParserRuleContext* tree, P::ExprContext* value, P::NameContext* bare) {
  ast::Clause c;
  c.word = {tree->getStart()->getText(), span(tree->getStart())};
  if (value) c.value = expr(value);
  if (bare) c.bare = name(bare);
  return c;
}

void TreeBuilder::report_duplicate_clauses(const std::vector<ast::Clause>& clauses) {
  std::map<std::string, SourceSpan> seen;
  for (const ast::Clause& c : clauses) {
    const auto [it, fresh] = seen.emplace(c.word.text, c.word.span);
    if (!fresh) diagnostics_.report(Code::E0208, c.word.span, fmt::format("`{}` is given twice", c.word.text)).label(it->second, "first here");
  }
}

std::vector<ast::Statement> TreeBuilder::block(P::BlockContext* tree) {
  std::vector<ast::Statement> out;
  for (P::StatementContext* s : tree->statement()) {
    const antlr4::Token* start = s->getStart();
    for (size_t definition : {P::USE, P::PARAM, P::LET, P::FN, P::MESH, P::DIM, P::TREAT, P::TRAIN}) {
      if (start->getType() != definition) continue;
      diagnostics_.report(Code::E0104, span(start), fmt::format("`{}` stands inside a block", start->getText()))
          .help("move it to the top level of the file");
    }
    out.push_back(statement(s));
  }
  return out;
}

ast::If TreeBuilder::if_statement(P::IfStatementContext* tree) {
  ast::If out;
  out.condition = expr(tree->ifHead()->expr());
  const auto blocks = tree->block();
  out.body = block(blocks.front());
  if (blocks.size() == 2) out.otherwise = block(blocks.back());
  if (tree->ifStatement()) {
    ast::Statement inner;
    inner.span = span(tree->ifStatement());
    inner.node = if_statement(tree->ifStatement());
    out.otherwise.push_back(std::move(inner));
  }
  return out;
}

ast::TrainItem TreeBuilder::train_item(P::TrainItemContext* tree) {
  ast::TrainItem item;
  item.span = span(tree);
  item.word = {tree->getStart()->getText(), span(tree->getStart())};
  if (tree->expr()) item.value = expr(tree->expr());
  if (tree->name()) item.bare = name(tree->name());
  if (tree->STRING()) item.glob = string(tree->STRING());
  return item;
}

ast::Statement TreeBuilder::statement(P::StatementContext* tree) {
  ast::Statement out;
  out.span = span(tree);
  if (auto* s = tree->simpleStatement()) return simple(s);
  if (auto* s = tree->forStatement()) {
    out.node = ast::For{name(s->forHead()->name()), expr(s->forHead()->expr()), block(s->block())};
  } else if (auto* i = tree->ifStatement()) {
    out.node = if_statement(i);
  } else {
    ast::Train train;
    for (P::TrainItemContext* item : tree->trainStatement()->trainItem()) train.items.push_back(train_item(item));
    out.node = std::move(train);
  }
  return out;
}

ast::Statement TreeBuilder::simple(P::SimpleStatementContext* tree) {
  ast::Statement out;
  out.span = span(tree);
  if (auto* s = tree->useStatement()) {
    out.node = ast::Use{name(s->name()), s->STRING() ? std::optional(string(s->STRING())) : std::nullopt};
  } else if (auto* s = tree->paramStatement()) {
    out.node = ast::Param{name(s->name()), expr(s->expr()), s->STRING() ? string(s->STRING()).text : ""};
  } else if (auto* s = tree->letStatement()) {
    out.node = ast::Let{name(s->name()), expr(s->expr())};
  } else if (auto* s = tree->fnStatement()) {
    ast::Fn fn;
    const auto names = s->name();
    fn.name = name(names.front());
    for (size_t i = 1; i < names.size(); ++i) fn.params.push_back(name(names[i]));
    fn.body = expr(s->expr());
    out.node = std::move(fn);
  } else if (auto* s = tree->meshStatement()) {
    out.node = ast::Mesh{name(s->name()), bindings(s->binding())};
  } else if (auto* s = tree->dimStatement()) {
    out.node = ast::Dim{string(s->STRING()), expr(s->expr())};
  } else if (auto* s = tree->treatStatement()) {
    out.node = ast::Treat{string(s->STRING()), name(s->name())};
  } else if (auto* s = tree->tagStatement()) {
    out.node = ast::Tag{name(s->name()), expr(s->expr(0)), s->expr().size() > 1 ? expr(s->expr(1)) : nullptr};
  } else if (auto* s = tree->placeStatement()) {
    ast::Place p{expr(s->expr(0)), expr(s->expr(1)), {}};
    for (auto* c : s->placeClause()) p.clauses.push_back(clause(c, c->expr(), nullptr));
    report_duplicate_clauses(p.clauses);
    out.node = std::move(p);
  } else if (auto* s = tree->replicateStatement()) {
    ast::Replicate r{expr(s->expr()), name(s->name()), {}};
    for (auto* c : s->replicateClause()) r.clauses.push_back(clause(c, c->expr(), c->name()));
    report_duplicate_clauses(r.clauses);
    out.node = std::move(r);
  } else if (auto* s = tree->shardStatement()) {
    if (auto* p = dynamic_cast<P::ShardParamContext*>(s)) {
      out.node = ast::ShardParam{string(p->STRING()), expr(p->expr()), name(p->name())};
    } else {
      auto* e = dynamic_cast<P::ShardExpertsContext*>(s);
      ast::ShardExperts x{expr(e->expr()), name(e->name()), {}};
      for (auto* c : e->shardClause()) x.clauses.push_back(clause(c, c->expr(), nullptr));
      report_duplicate_clauses(x.clauses);
      out.node = std::move(x);
    }
  } else if (auto* s = tree->splitStatement()) {
    out.node = ast::Split{expr(s->expr(0)), expr(s->expr(1)), name(s->name())};
  } else if (auto* s = tree->orderStatement()) {
    out.node = ast::Order{expr(s->expr())};
  } else if (auto* s = tree->recomputeStatement()) {
    out.node = ast::Recompute{expr(s->expr())};
  } else if (auto* s = tree->streamStatement()) {
    ast::Stream x{expr(s->expr()), {}};
    for (auto* c : s->streamClause()) x.clauses.push_back(clause(c, c->expr(), c->name()));
    report_duplicate_clauses(x.clauses);
    out.node = std::move(x);
  } else if (auto* s = tree->freezeStatement()) {
    out.node = ast::Freeze{string(s->STRING())};
  } else if (auto* s = tree->tieStatement()) {
    out.node = ast::Tie{string(s->STRING(0)), string(s->STRING(1)), s->TRANSPOSED() != nullptr};
  } else if (auto* s = tree->assertStatement()) {
    out.node = ast::Assert{expr(s->expr(0)), expr(s->expr(1))};
  }
  return out;
}

}  // namespace piper::frontend
