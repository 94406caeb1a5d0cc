// Operators: logic, ranges and lists, arithmetic on integers, floats and sizes, comparisons.
#include <fmt/format.h>

#include <limits>

#include "frontend/piper/evaluator.h"

namespace piper::frontend {

using ast::Expr;
using ast::Op;
using support::Code;

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

}  // namespace piper::frontend
