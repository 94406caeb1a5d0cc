// Budget, errors, names and the forms of expressions; operators.cpp has the operators, calls.cpp the calls.
#include "frontend/piper/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/strings.h"

namespace piper::frontend {

using ast::Expr;
using support::Code;


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
