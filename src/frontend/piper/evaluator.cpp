#include "frontend/piper/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "support/strings.h"

namespace piper::frontend {

using ast::Expr;
using ast::Op;
using support::Code;

namespace {
constexpr int64_t kStepBudget = 10'000'000;
constexpr int kEvalDepth = 20'000;  // nested evaluations; big_stack.h has the stack for them
}  // namespace

support::SourceSpan Evaluator::user_span(support::SourceSpan span) const { return frames_.empty() ? span : frames_.front().call; }

support::Diagnostic& Evaluator::error(Code code, support::SourceSpan span, std::string message) {
  if (!reported_.insert({code, span.file, span.begin, message}).second) {
    scratch_ = support::Diagnostic{};
    return scratch_;
  }
  auto& d = diagnostics_.report(code, span, std::move(message));
  // The call chain, innermost first; the middle of a deep recursion says nothing.
  for (size_t i = frames_.size(), shown = 0; i-- > 0;) {
    // A recursion is one place, however deep.
    if (i > 0 && i + 1 < frames_.size() && frames_[i].call == frames_[i + 1].call) continue;
    if (++shown > 4 && i > 0) {
      d.note(fmt::format("and {} more calls", i));
      i = 0;
    }
    d.label(frames_[i].call, fmt::format("in this call of `{}`", frames_[i].name));
  }
  for (const auto& [name, value] : loops_) d.note(fmt::format("here `{}` = {}", name, to_string(value)));
  return d;
}

void Evaluator::stop(const Expr& e, std::string message, std::string note) {
  if (exhausted_) return;
  error(Code::E0204, e.span, std::move(message)).note(std::move(note)).help("does a recursion end? is a list larger than meant?");
  exhausted_ = true;  // the rest would only say the same
}

bool Evaluator::spend(int64_t steps, const Expr& e) {
  if (!exhausted_ && steps <= kStepBudget - steps_) {
    steps_ += steps;
    return true;
  }
  stop(e, frames_.empty() ? std::string("evaluation takes too long") : fmt::format("evaluation of `{}` takes too long", frames_.back().name),
       fmt::format("the budget is {} steps", kStepBudget));
  return false;
}

Result Evaluator::eval(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  if (!spend(1, e)) return std::nullopt;
  if (depth_ >= kEvalDepth) {
    stop(e, frames_.empty() ? std::string("expression is nested too deeply") : fmt::format("recursion of `{}` is too deep", frames_.back().name),
         fmt::format("the limit is {} nested evaluations", kEvalDepth));
    return std::nullopt;
  }
  ++depth_;
  Result r = eval_inner(e, module, scope, op);
  --depth_;
  return r;
}

Result Evaluator::eval_inner(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  using Kind = Expr::Kind;
  switch (e.kind) {
    case Kind::kInt: return Value{e.integer};
    case Kind::kFloat: return Value{e.number};
    case Kind::kBool: return Value{e.integer != 0};
    case Kind::kSize: return Value{Size{e.integer}};
    case Kind::kString: return Value{e.text};
    case Kind::kName: return eval_name(e, module, scope, op);
    case Kind::kUnary: return eval_unary(e, module, scope, op);
    case Kind::kBinary: return eval_binary(e, module, scope, op);
    case Kind::kIndex: return eval_index(e, module, scope, op);
    case Kind::kLet: {
      Result value = eval(*e.children[0], module, scope, op);
      if (!value) return value;
      const Scope inner{scope, e.text, std::move(*value)};
      return eval(*e.children[1], module, &inner, op);
    }
    case Kind::kIf: {
      const Result c = eval(*e.children[0], module, scope, op);
      if (!c) return c;
      if (c->unknown()) return c;
      const bool* b = c->get<bool>();
      if (!b) {
        error(Code::E0202, e.children[0]->span, fmt::format("a condition must be a boolean, this is {}", kind_name(*c)));
        return std::nullopt;
      }
      return eval(*e.children[*b ? 1 : 2], module, scope, op);
    }
    case Kind::kAssert: {
      const Result c = eval(*e.children[0], module, scope, op);
      const Result why = eval(*e.children[1], module, scope, op);
      if (!c || !why) return std::nullopt;
      if (c->unknown()) return c;
      if (!c->get<bool>()) {
        error(Code::E0202, e.children[0]->span, fmt::format("an assertion must be a boolean, this is {}", kind_name(*c)));
        return std::nullopt;
      }
      if (!*c->get<bool>()) {
        auto& d = error(Code::E0206, user_span(e.span), why->get<std::string>() ? *why->get<std::string>() : to_string(*why));
        if (!(user_span(e.span) == e.span)) d.label(e.children[0]->span, "this does not hold");
        if (std::string values = values_of(*e.children[0], module, scope); !values.empty()) d.note("here " + values);
        return std::nullopt;
      }
      return eval(*e.children[2], module, scope, op);
    }
    case Kind::kMatch: return eval_match(e, module, scope, op);
    case Kind::kHas:
      if (!op) {
        error(Code::E0202, e.span, "`has` speaks of an operation; it has a meaning after `where` only");
        return std::nullopt;
      }
      if (std::find(tag_names.begin(), tag_names.end(), e.text) == tag_names.end()) {
        auto& d = error(Code::E0303, e.span, fmt::format("there is no tag `{}`", e.text));
        const std::string meant = support::did_you_mean(e.text, tag_names);
        if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
        return std::nullopt;
      }
      return Value{op->tags->count(e.text) > 0};
    case Kind::kSelector: return eval_selector(e, module, scope, op);
    case Kind::kDevices: return eval_devices(e, module, scope, op);
    case Kind::kCall: return eval_call(e, module, scope, op);
    case Kind::kComprehension: return eval_comprehension(e, module, scope, op);
    case Kind::kList: {
      std::vector<Value> items;
      for (const auto& child : e.children) {
        Result r = eval(*child, module, scope, op);
        if (!r) return r;
        items.push_back(std::move(*r));
      }
      return make_list(std::move(items));
    }
  }
  return std::nullopt;
}

Result Evaluator::global(const std::string& name, Module& module) {
  if (const auto it = module.values.find(name); it != module.values.end()) return it->second;
  const auto let = module.lets.find(name);
  const auto param = module.params.find(name);
  const bool is_let = let != module.lets.end();
  if (!is_let && param == module.params.end()) return std::nullopt;
  const ast::Name& defined = is_let ? let->second->name : param->second->name;
  auto& busy = module.evaluating;
  if (std::find(busy.begin(), busy.end(), name) != busy.end()) {
    error(Code::E0204, defined.span, fmt::format("`{}` is defined by itself", name));
    return std::nullopt;
  }
  busy.push_back(name);
  Result value = eval(is_let ? *let->second->value : *param->second->value, module);
  busy.pop_back();
  // What needs the model is evaluated again when the model is there.
  if (value && !value->unknown()) module.values[name] = *value;
  return value;
}

Result Evaluator::eval_name(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  if (scope) {
    if (const Value* v = scope->find(e.text)) return *v;
  }
  if (op) {
    if (const auto it = op->captures.find(e.text); it != op->captures.end()) return Value{it->second};
    const bool capture = op->names && op->names->count(e.text) > 0;
    if (const auto it = op->tags->find(e.text); it != op->tags->end() && !capture) return Value{it->second};
    if (capture || std::find(tag_names.begin(), tag_names.end(), e.text) != tag_names.end()) {
      op->undefined = true;
      return Value{Unknown{}};
    }
  }
  const int before = diagnostics_.error_count();
  if (Result g = global(e.text, module)) return g;
  if (diagnostics_.error_count() > before) return std::nullopt;
  if (mesh && e.text == mesh->name) {
    ir::DeviceSet all;
    all.span = e.span;
    return Value{all};
  }
  std::vector<std::string> known;
  if (op) known = tag_names;
  if (op && op->names) known.insert(known.end(), op->names->begin(), op->names->end());
  if (mesh) known.push_back(mesh->name);
  for (const auto& [name, value] : module.values) known.push_back(name);
  for (const auto& [name, let] : module.lets) known.push_back(name);
  for (const auto& [name, param] : module.params) known.push_back(name);
  for (const Scope* s = scope; s; s = s->outer) known.push_back(s->name);
  auto& d = error(Code::E0201, e.span, fmt::format("`{}` is not defined", e.text));
  const std::string meant = support::did_you_mean(e.text, known);
  if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
  if (module.functions.count(e.text)) d.help(fmt::format("`{}` is a function: call it", e.text));
  if (!op && std::find(tag_names.begin(), tag_names.end(), e.text) != tag_names.end()) {
    d.help(fmt::format("`{}` is a tag: only operations have it, in `tag` statements", e.text));
  }
  return std::nullopt;
}

Result Evaluator::eval_operand(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  Result r = eval(e, module, scope, op);
  if (!r || !r->unknown() || !op || !op->undefined) return r;
  op->undefined = false;
  return Value{false};
}

// The right side is looked at only when it decides. Captures of a side that failed are not kept.
Result Evaluator::eval_logic(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  const bool is_or = e.op == Op::kOr;
  const auto captures = op ? op->captures : std::map<std::string, int64_t>{};
  bool unknown = false;
  for (const auto& child : e.children) {
    const Result r = eval_operand(*child, module, scope, op);
    if (!r) return r;
    const bool* b = r->get<bool>();
    unknown = unknown || r->unknown();
    if (!b && !r->unknown()) {
      error(Code::E0202, child->span, fmt::format("`{}` needs booleans, this is {}", ast::op_text(e.op), kind_name(*r)));
      return std::nullopt;
    }
    if (b && !*b && op) op->captures = captures;
    if (b && *b == is_or) return r;
  }
  if (unknown) return Value{Unknown{}};
  return Value{!is_or};
}

Result Evaluator::eval_unary(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  const auto captures = op ? op->captures : std::map<std::string, int64_t>{};
  const Result a = e.op == Op::kNot ? eval_operand(*e.children[0], module, scope, op) : eval(*e.children[0], module, scope, op);
  if (op) op->captures = captures;
  if (!a || a->unknown()) return a;
  if (e.op == Op::kNot) {
    if (const bool* b = a->get<bool>()) return Value{!*b};
    error(Code::E0202, e.span, fmt::format("`not` needs a boolean, this is {}", kind_name(*a)));
    return std::nullopt;
  }
  if (const double* f = a->get<double>()) return Value{-*f};
  if (const int64_t* i = a->get<int64_t>()) {
    if (*i != std::numeric_limits<int64_t>::min()) return Value{-*i};
    error(Code::E0203, e.span, "integer overflow");
    return std::nullopt;
  }
  error(Code::E0202, e.span, fmt::format("`-` needs a number, this is {}", kind_name(*a)));
  return std::nullopt;
}

namespace {

std::optional<std::vector<ir::Selector>> as_group(const Value& v) {
  if (const auto* s = v.get<ir::Selector>()) return std::vector<ir::Selector>{*s};
  if (const auto* g = v.get<Group>()) return g->selectors;
  return std::nullopt;
}

}  // namespace

Result Evaluator::eval_binary(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  if (e.op == Op::kAnd || e.op == Op::kOr) return eval_logic(e, module, scope, op);
  const Result a = eval(*e.children[0], module, scope, op);
  if (!a) return a;
  const Result b = eval(*e.children[1], module, scope, op);
  if (!b) return b;
  if (a->unknown() || b->unknown()) return Value{Unknown{}};
  switch (e.op) {
    case Op::kConcat: {
      const List *x = a->get<List>(), *y = b->get<List>();
      if (x && y) {
        if (!spend(static_cast<int64_t>((*x)->size() + (*y)->size()) / 4, e)) return std::nullopt;
        std::vector<Value> items(**x);
        items.insert(items.end(), (*y)->begin(), (*y)->end());
        return make_list(std::move(items));
      }
      break;
    }
    case Op::kOverlap: {
      auto x = as_group(*a), y = as_group(*b);
      if (x && y) {
        x->insert(x->end(), y->begin(), y->end());
        return Value{Group{std::move(*x)}};
      }
      break;
    }
    case Op::kRange: {
      const int64_t *x = a->get<int64_t>(), *y = b->get<int64_t>();
      if (x && y) return eval_range(e, *x, *y, 1);
      break;
    }
    case Op::kEq: case Op::kNe: case Op::kLt: case Op::kLe: case Op::kGt: case Op::kGe: return eval_compare(e, *a, *b);
    default: return eval_arithmetic(e, *a, *b);
  }
  error(Code::E0202, e.span, fmt::format("`{}` cannot join {} and {}", ast::op_text(e.op), kind_name(*a), kind_name(*b)));
  return std::nullopt;
}

namespace {

// Floor division and its remainder.
int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// Nothing on overflow; division by zero is checked before.
std::optional<int64_t> integer_op(Op op, int64_t x, int64_t y) {
  int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd: overflow = __builtin_add_overflow(x, y, &out); break;
    case Op::kSub: overflow = __builtin_sub_overflow(x, y, &out); break;
    case Op::kMul: overflow = __builtin_mul_overflow(x, y, &out); break;
    default:
      // Dividing by -1 is the one quotient that can overflow, and would trap.
      if (y == -1) {
        overflow = op == Op::kDiv && __builtin_sub_overflow(int64_t{0}, x, &out);
      } else {
        out = op == Op::kDiv ? floor_div(x, y) : x - floor_div(x, y) * y;
      }
  }
  return overflow ? std::nullopt : std::optional(out);
}

}  // namespace

Result Evaluator::eval_range(const Expr& e, int64_t begin, int64_t end, int64_t by) {
  const __int128 distance = static_cast<__int128>(end) - begin;
  const __int128 count = by > 0 ? (distance + by - 1) / by : (distance + by + 1) / by;
  if (count <= 0) return make_list({});
  if (!spend(count > kStepBudget ? kStepBudget + 1 : static_cast<int64_t>(count), e)) return std::nullopt;
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (__int128 i = 0; i < count; ++i) items.push_back(static_cast<int64_t>(begin + i * by));
  return make_list(std::move(items));
}

// Sizes add and subtract, are multiplied and divided by integers, and divide into an integer.
Result Evaluator::eval_size_arithmetic(const Expr& e, const Value& a, const Value& b) {
  const Size *s = a.get<Size>(), *t = b.get<Size>();
  const int64_t *i = a.get<int64_t>(), *j = b.get<int64_t>();
  const bool divides = e.op == Op::kDiv || e.op == Op::kMod;
  const bool fits = e.op == Op::kAdd || e.op == Op::kSub ? s && t : e.op == Op::kMul ? (s && j) || (i && t) : s && (t || j);
  if (!fits) {
    error(Code::E0202, e.span, fmt::format("`{}` has no meaning for {} and {}", ast::op_text(e.op), kind_name(a), kind_name(b)));
    return std::nullopt;
  }
  const int64_t x = s ? s->bytes : *i, y = t ? t->bytes : *j;
  if (divides && y == 0) {
    error(Code::E0203, e.span, "division by zero");
    return std::nullopt;
  }
  const auto out = integer_op(e.op, x, y);
  if (!out) {
    error(Code::E0203, e.span, "integer overflow");
    return std::nullopt;
  }
  if (e.op == Op::kDiv && t) return Value{*out};
  return Value{Size{*out}};
}

Result Evaluator::eval_arithmetic(const Expr& e, const Value& a, const Value& b) {
  if (a.get<Size>() || b.get<Size>()) return eval_size_arithmetic(e, a, b);
  const bool divides = e.op == Op::kDiv || e.op == Op::kMod;
  const int64_t *i = a.get<int64_t>(), *j = b.get<int64_t>();
  double x = 0, y = 0;
  if (!as_number(a, &x) || !as_number(b, &y)) {
    error(Code::E0202, e.span, fmt::format("`{}` needs numbers, these are {} and {}", ast::op_text(e.op), kind_name(a), kind_name(b)));
    return std::nullopt;
  }
  if (divides && y == 0) {
    error(Code::E0203, e.span, "division by zero");
    return std::nullopt;
  }
  if (i && j) {
    if (const auto out = integer_op(e.op, *i, *j)) return Value{*out};
    error(Code::E0203, e.span, fmt::format("integer overflow: {} {} {} does not fit 64 bits", *i, ast::op_text(e.op), *j));
    return std::nullopt;
  }
  switch (e.op) {
    case Op::kAdd: return Value{x + y};
    case Op::kSub: return Value{x - y};
    case Op::kMul: return Value{x * y};
    case Op::kDiv: return Value{x / y};
    default: break;
  }
  error(Code::E0202, e.span, "`%` needs integers");
  return std::nullopt;
}

Result Evaluator::eval_compare(const Expr& e, const Value& a, const Value& b) {
  if (e.op == Op::kEq) return Value{equal(a, b)};
  if (e.op == Op::kNe) return Value{!equal(a, b)};
  double x = 0, y = 0;
  if (const Size *s = a.get<Size>(), *t = b.get<Size>(); s && t) {
    x = static_cast<double>(s->bytes);
    y = static_cast<double>(t->bytes);
  } else if (!as_number(a, &x) || !as_number(b, &y)) {
    error(Code::E0202, e.span, fmt::format("`{}` needs numbers, these are {} and {}", ast::op_text(e.op), kind_name(a), kind_name(b)));
    return std::nullopt;
  }
  switch (e.op) {
    case Op::kLt: return Value{x < y};
    case Op::kLe: return Value{x <= y};
    case Op::kGt: return Value{x > y};
    default: return Value{x >= y};
  }
}

Result Evaluator::eval_index(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  const Result list = eval(*e.children[0], module, scope, op);
  const Result at = list ? eval(*e.children[1], module, scope, op) : std::nullopt;
  if (!list || !at) return std::nullopt;
  if (list->unknown() || at->unknown()) return Value{Unknown{}};
  const List* l = list->get<List>();
  const int64_t* i = at->get<int64_t>();
  if (!l || !i) {
    error(Code::E0202, e.span, fmt::format("cannot index {} with {}", kind_name(*list), kind_name(*at)));
    return std::nullopt;
  }
  if (*i < 0 || *i >= static_cast<int64_t>((*l)->size())) {
    error(Code::E0207, e.span, fmt::format("element {} of a list of {}", *i, (*l)->size()));
    return std::nullopt;
  }
  return (**l)[static_cast<size_t>(*i)];
}

bool Evaluator::run_loops(const Expr& e, size_t loop, Module& module, const Scope* scope, OpContext* op, std::vector<Value>& out) {
  if (loop == e.loops.size()) {
    Result r = eval(*e.children[0], module, scope, op);
    if (r) out.push_back(std::move(*r));
    return r.has_value();
  }
  const ast::Loop& l = e.loops[loop];
  const Result list = eval(*l.list, module, scope, op);
  if (!list) return false;
  const List* items = list->get<List>();
  if (!items) {
    if (list->unknown()) {
      out.assign(1, Value{Unknown{}});
      return true;
    }
    error(Code::E0202, l.list->span, fmt::format("`for` needs a list, this is {}", kind_name(*list)));
    return false;
  }
  for (const Value& item : **items) {
    const Scope inner{scope, l.name.text, item};
    bool wanted = true;
    for (const auto& c : l.conditions) {
      const auto b = boolean(*c, module, &inner, op, "a condition");
      if (!b) return false;
      wanted = wanted && *b;
      if (!wanted) break;
    }
    if (wanted && !run_loops(e, loop + 1, module, &inner, op, out)) return false;
  }
  return true;
}

Result Evaluator::eval_comprehension(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  std::vector<Value> out;
  if (!run_loops(e, 0, module, scope, op, out)) return std::nullopt;
  const bool unknown = std::any_of(out.begin(), out.end(), [](const Value& v) { return v.unknown(); });
  if (unknown) return Value{Unknown{}};
  return make_list(std::move(out));
}

namespace {

void collect_names(const Expr& e, std::vector<std::string>& names) {
  if (e.kind == Expr::Kind::kName && std::find(names.begin(), names.end(), e.text) == names.end()) names.push_back(e.text);
  for (const auto& child : e.children) collect_names(*child, names);
  for (const auto& binding : e.bindings) collect_names(*binding.value, names);
}

}  // namespace

std::string Evaluator::values_of(const Expr& e, Module& module, const Scope* scope) {
  std::vector<std::string> names, texts;
  collect_names(e, names);
  for (const std::string& name : names) {
    const bool told = std::any_of(loops_.begin(), loops_.end(), [&](const auto& l) { return l.first == name; });
    if (told) continue;
    const Value* local = scope ? scope->find(name) : nullptr;
    const auto known = module.values.find(name);
    if (local) texts.push_back(fmt::format("`{}` = {}", name, to_string(*local)));
    else if (known != module.values.end()) texts.push_back(fmt::format("`{}` = {}", name, to_string(known->second)));
  }
  return support::join(texts, ", ");
}

std::optional<int64_t> Evaluator::integer(const Expr& e, Module& module, const Scope* scope, const std::string& what) {
  const Result r = eval(e, module, scope);
  if (!r) return std::nullopt;
  if (const int64_t* i = r->get<int64_t>()) return *i;
  if (!r->unknown()) error(Code::E0202, e.span, fmt::format("{} must be an integer, this is {}", what, kind_name(*r)));
  return std::nullopt;
}

std::optional<bool> Evaluator::boolean(const Expr& e, Module& module, const Scope* scope, OpContext* op, const std::string& what) {
  const Result r = eval(e, module, scope, op);
  if (!r) return std::nullopt;
  if (const bool* b = r->get<bool>()) return *b;
  if (r->unknown() && op) op->undefined = false;
  if (r->unknown()) return false;
  error(Code::E0202, e.span, fmt::format("{} must be a boolean, this is {}", what, kind_name(*r)));
  return std::nullopt;
}

}  // namespace piper::frontend
