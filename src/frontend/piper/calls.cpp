// Calls: functions of the file and of its libraries, builtins; selectors, device sets and predicates.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/piper/evaluator.h"
#include "support/strings.h"

namespace piper::frontend {

using ast::Expr;
using support::Code;

const std::vector<std::string>& builtin_names() {
  static const std::vector<std::string> kNames{"abs",     "adam",     "adamw",   "balanced", "ceil_div", "constant", "cosine",
                                               "count",   "cross_entropy", "flatten", "len",  "linear",   "max",      "mean",
                                               "min",     "mse",      "normal",  "range",    "ranks",    "reverse",  "sgd",
                                               "sum",     "uniform",  "zip"};
  return kNames;
}

namespace {
bool is_setting(const std::string& name) {
  static const std::vector<std::string> kSettings{"adam", "adamw",  "constant", "cosine", "cross_entropy", "linear",
                                                  "mean", "mse",    "normal",   "sgd",    "uniform"};
  return std::find(kSettings.begin(), kSettings.end(), name) != kSettings.end();
}
}  // namespace

Result Evaluator::eval_call(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  if (!e.module.text.empty()) {
    const auto used = module.uses.find(e.module.text);
    if (used == module.uses.end()) {
      error(Code::E0201, e.module.span, fmt::format("`{}` is not used by this file", e.module.text)).help(fmt::format("add `use {}`", e.module.text));
      return std::nullopt;
    }
    const auto fn = used->second->functions.find(e.text);
    if (fn != used->second->functions.end()) return call_function(*fn->second, e, *used->second, module, scope, op);
    std::vector<std::string> names;
    for (const auto& [name, f] : used->second->functions) names.push_back(name);
    auto& d = error(Code::E0201, e.span, fmt::format("`{}` has no function `{}`", e.module.text, e.text));
    const std::string meant = support::did_you_mean(e.text, names);
    if (!meant.empty()) d.help(fmt::format("did you mean `{}.{}`?", e.module.text, meant));
    return std::nullopt;
  }
  if (const auto fn = module.functions.find(e.text); fn != module.functions.end()) {
    return call_function(*fn->second, e, module, module, scope, op);
  }
  const auto& builtins = builtin_names();
  if (std::find(builtins.begin(), builtins.end(), e.text) != builtins.end()) return call_builtin(e, module, scope, op);
  std::vector<std::string> names = builtins;
  for (const auto& [name, f] : module.functions) names.push_back(name);
  auto& d = error(Code::E0201, e.span, fmt::format("there is no function `{}`", e.text));
  for (const auto& [name, used] : module.uses) {
    if (used->functions.count(e.text)) d.help(fmt::format("`{}.{}` exists", name, e.text));
  }
  const std::string meant = support::did_you_mean(e.text, names);
  if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
  return std::nullopt;
}

Result Evaluator::call_function(const ast::Fn& fn, const Expr& e, Module& home, Module& module, const Scope* scope, OpContext* op) {
  if (e.bindings.size() != fn.params.size()) {
    std::vector<std::string> params;
    for (const auto& p : fn.params) params.push_back(p.text);
    error(Code::E0205, e.span, fmt::format("`{}` takes {} arguments, got {}", fn.name.text, fn.params.size(), e.bindings.size()))
        .help(fmt::format("it is `{}({})`", fn.name.text, support::join(params, ", ")));
    return std::nullopt;
  }
  std::vector<Scope> scopes(fn.params.size());
  std::vector<bool> given(fn.params.size(), false);
  for (size_t i = 0; i < e.bindings.size(); ++i) {
    size_t slot = i;
    if (!e.bindings[i].name.text.empty()) {
      slot = 0;
      while (slot < fn.params.size() && fn.params[slot].text != e.bindings[i].name.text) ++slot;
    }
    if (slot == fn.params.size() || given[slot]) {
      error(Code::E0205, e.bindings[i].name.span, fmt::format("`{}` has no parameter `{}` left", fn.name.text, e.bindings[i].name.text));
      return std::nullopt;
    }
    given[slot] = true;
    Result value = eval(*e.bindings[i].value, module, scope, op);
    if (!value) return value;
    scopes[slot].name = fn.params[slot].text;
    scopes[slot].value = std::move(*value);
  }
  for (size_t i = 1; i < scopes.size(); ++i) scopes[i].outer = &scopes[i - 1];
  frames_.push_back({fn.name.text, e.span});
  Result result = eval(*fn.body, home, scopes.empty() ? nullptr : &scopes.back());
  frames_.pop_back();
  return result;
}

Result Evaluator::count_or_ranks(const Expr& e) {
  const bool ranks = e.text == "ranks";
  if (e.bindings.size() != 1 || e.bindings[0].value->kind != Expr::Kind::kName) {
    error(Code::E0205, e.span, fmt::format("`{}` takes the name of {}", e.text, ranks ? "an axis" : "a tag"));
    return std::nullopt;
  }
  const std::string& name = e.bindings[0].value->text;
  if (ranks) {
    const int axis = mesh ? mesh->axis_index(name) : -1;
    if (axis >= 0) return Value{mesh->axes[static_cast<size_t>(axis)].size};
    error(Code::E0303, e.bindings[0].value->span, fmt::format("the mesh has no axis `{}`", name));
    return std::nullopt;
  }
  if (std::find(tag_names.begin(), tag_names.end(), name) == tag_names.end()) {
    auto& d = error(Code::E0303, e.bindings[0].value->span, fmt::format("there is no tag `{}`", name));
    const std::string meant = support::did_you_mean(name, tag_names);
    if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
    return std::nullopt;
  }
  if (in_header) {
    error(Code::E0210, e.span, fmt::format("`{}` needs the model, and this is evaluated before the model is read", e.text))
        .note("dims, mesh, params and `train` decide how the model is read");
    return std::nullopt;
  }
  if (!have_model) return Value{Unknown{}};
  return Value{tag_counts[name]};
}

Result Evaluator::call_builtin(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  if (e.text == "count" || e.text == "ranks") return count_or_ranks(e);
  if (e.text == "balanced") {
    error(Code::E0205, e.span, "`balanced` stands alone: `tag stage = balanced(layer, n)`");
    return std::nullopt;
  }
  std::vector<Value> args;
  Record record{e.text, {}};
  for (const ast::Binding& b : e.bindings) {
    // A string after `output`, `input` names a tensor here.
    const Expr& expr = is_setting(e.text) && b.value->kind == Expr::Kind::kMatch ? *b.value->children[0] : *b.value;
    Result r = eval(expr, module, scope, op);
    if (!r) return r;
    if (!is_setting(e.text) && !b.name.text.empty()) {
      error(Code::E0205, b.name.span, fmt::format("`{}` has no named arguments", e.text));
      return std::nullopt;
    }
    const std::string key = b.name.text.empty() ? fmt::format("#{}", args.size()) : b.name.text;
    if (!record.fields.emplace(key, std::make_shared<const Value>(*r)).second) {
      error(Code::E0205, b.name.span, fmt::format("`{}` is given twice", key));
      return std::nullopt;
    }
    args.push_back(std::move(*r));
  }
  if (is_setting(e.text)) return Value{std::move(record)};
  for (const Value& v : args) {
    if (v.unknown()) return v;
  }
  return apply_builtin(e, args);
}

namespace {

std::optional<std::vector<int64_t>> integers(const std::vector<Value>& values) {
  std::vector<int64_t> out;
  for (const Value& v : values) {
    const int64_t* i = v.get<int64_t>();
    if (!i) return std::nullopt;
    out.push_back(*i);
  }
  return out;
}

// min, max, sum of numbers; integers stay integers.
std::optional<Value> fold(const std::string& name, const std::vector<Value>& values) {
  if (values.empty()) return name == "sum" ? std::optional(Value{int64_t{0}}) : std::nullopt;
  const auto ints = integers(values);
  if (ints && name == "sum") {
    int64_t total = 0;
    for (int64_t i : *ints) {
      if (__builtin_add_overflow(total, i, &total)) return std::nullopt;
    }
    return Value{total};
  }
  size_t best = 0;
  double total = 0, best_number = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    double x = 0;
    if (!as_number(values[i], &x)) return std::nullopt;
    total += x;
    if (i == 0 || (name == "min" ? x < best_number : x > best_number)) {
      best = i;
      best_number = x;
    }
  }
  return name == "sum" ? Value{total} : values[best];
}

const std::vector<Value>* list_of(const std::vector<Value>& args, size_t i) {
  const List* l = i < args.size() ? args[i].get<List>() : nullptr;
  return l ? l->get() : nullptr;
}

}  // namespace

Result Evaluator::apply_builtin(const Expr& e, const std::vector<Value>& args) {
  const std::string& name = e.text;
  const auto* list = list_of(args, 0);
  if (name == "min" || name == "max" || name == "sum") {
    const bool spread = args.size() == 1 && list;
    if (spread || name != "sum") {
      if (auto r = fold(name, spread ? *list : args)) return r;
    }
  } else if (name == "abs" && args.size() == 1) {
    const int64_t* i = args[0].get<int64_t>();
    if (i && *i == std::numeric_limits<int64_t>::min()) {
      error(Code::E0203, e.span, "integer overflow");
      return std::nullopt;
    }
    if (i) return Value{*i < 0 ? -*i : *i};
    if (const double* f = args[0].get<double>()) return Value{std::fabs(*f)};
  } else if (name == "len" && args.size() == 1 && list) {
    return Value{static_cast<int64_t>(list->size())};
  } else if (name == "reverse" && args.size() == 1 && list) {
    return make_list({list->rbegin(), list->rend()});
  } else if (name == "flatten" && args.size() == 1 && list) {
    std::vector<Value> out;
    if (!spend(static_cast<int64_t>(list->size()) / 4, e)) return std::nullopt;
    for (const Value& v : *list) {
      if (const List* inner = v.get<List>(); inner && !spend(static_cast<int64_t>((*inner)->size()) / 4, e)) return std::nullopt;
      if (const List* inner = v.get<List>()) out.insert(out.end(), (*inner)->begin(), (*inner)->end());
      else out.push_back(v);
    }
    return make_list(std::move(out));
  } else if (name == "zip" && args.size() == 2 && list && list_of(args, 1)) {
    const auto* other = list_of(args, 1);
    std::vector<Value> out;
    for (size_t i = 0; i < std::min(list->size(), other->size()); ++i) out.push_back(make_list({(*list)[i], (*other)[i]}));
    return make_list(std::move(out));
  } else if (name == "range" || name == "ceil_div") {
    const auto ints = integers(args);
    if (ints && name == "ceil_div" && ints->size() == 2 && (*ints)[1] > 0) {
      const int64_t quotient = (*ints)[0] / (*ints)[1], rest = (*ints)[0] % (*ints)[1];
      return Value{quotient + (rest > 0 ? 1 : 0)};
    }
    if (ints && name == "range" && (ints->size() == 2 || ints->size() == 3)) {
      const int64_t by = ints->size() == 3 ? (*ints)[2] : 1;
      if (by != 0) return eval_range(e, (*ints)[0], (*ints)[1], by);
    }
  }
  std::vector<std::string> kinds;
  for (const Value& v : args) kinds.push_back(kind_name(v));
  error(Code::E0205, e.span, fmt::format("`{}` does not take ({})", name, support::join(kinds, ", ")));
  return std::nullopt;
}

Result Evaluator::eval_selector(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  constexpr int64_t kSteps = 10;  // a selector is larger than a number
  if (!spend(kSteps, e)) return std::nullopt;
  ir::Selector s;
  s.span = user_span(e.span);
  static const std::map<std::string, uint32_t> kPasses{{"F", ir::kPassF}, {"B", ir::kPassB}, {"I", ir::kPassI}, {"W", ir::kPassW}, {"U", ir::kPassU}, {"all", ir::kPassAll}};
  s.passes = kPasses.at(e.text);
  for (const ast::TagConstraint& c : e.constraints) {
    ir::Constraint out;
    out.tag = c.tag.text;
    out.span = user_span(c.tag.span);
    if (std::find(tag_names.begin(), tag_names.end(), out.tag) == tag_names.end()) {
      auto& d = error(Code::E0303, user_span(c.tag.span), fmt::format("there is no tag `{}`", out.tag));
      std::string meant = support::did_you_mean(out.tag, tag_names);
      if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
      if (!(user_span(c.tag.span) == c.tag.span)) {
        d.note(fmt::format("`{}` speaks of the tag `{}`; the schedules of the library of `stage` and `mb`", frames_.back().name, out.tag));
      }
      return std::nullopt;
    }
    if (!c.value) {
      out.kind = c.present ? ir::Constraint::Kind::kPresent : ir::Constraint::Kind::kAbsent;
      s.constraints.push_back(std::move(out));
      continue;
    }
    const Result v = eval(*c.value, module, scope, op);
    if (!v) return v;
    if (v->unknown()) return v;
    if (const int64_t* i = v->get<int64_t>()) {
      out.values = {*i};
    } else if (const auto* l = v->get<List>(); l && integers(**l)) {
      out.values = *integers(**l);
      std::sort(out.values.begin(), out.values.end());
      out.values.erase(std::unique(out.values.begin(), out.values.end()), out.values.end());
    } else {
      error(Code::E0202, c.value->span, fmt::format("a tag's value is an integer or a list of integers, this is {}", kind_name(*v)));
      return std::nullopt;
    }
    s.constraints.push_back(std::move(out));
  }
  return Value{std::move(s)};
}

Result Evaluator::eval_devices(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  if (!mesh || e.text != mesh->name) {
    error(Code::E0201, e.span, mesh ? fmt::format("`{}` is not the mesh, which is called `{}`", e.text, mesh->name) : fmt::format("there is no mesh `{}`", e.text));
    return std::nullopt;
  }
  ir::DeviceSet set;
  set.span = user_span(e.span);
  for (const ast::Binding& b : e.bindings) {
    const int axis = mesh->axis_index(b.name.text);
    if (axis < 0) {
      std::vector<std::string> names;
      for (const auto& a : mesh->axes) names.push_back(a.name);
      auto& d = error(Code::E0303, b.name.span, fmt::format("the mesh has no axis `{}`", b.name.text));
      d.note(fmt::format("its axes are {}", support::join(names, ", ")));
      return std::nullopt;
    }
    const Result v = eval(*b.value, module, scope, op);
    if (!v) return v;
    if (v->unknown()) return v;
    const int64_t* at = v->get<int64_t>();
    const int64_t size = mesh->axes[static_cast<size_t>(axis)].size;
    if (!at || *at < 0 || *at >= size) {
      error(Code::E0304, b.value->span, at ? fmt::format("coordinate {} of axis `{}`, which has {}", *at, b.name.text, size)
                                           : fmt::format("a coordinate is an integer, this is {}", kind_name(*v)));
      return std::nullopt;
    }
    set.fixed.emplace_back(axis, *at);
  }
  std::sort(set.fixed.begin(), set.fixed.end());
  return Value{std::move(set)};
}

bool op_matches(ast::MatchKind kind, const std::string& pattern, OpContext& op) {
  const ir::Model& model = *op.model;
  const ir::Op& o = model.op(op.op);
  const auto glob = [&](const std::string& text) {
    const auto m = support::match_path_glob(pattern, text);
    if (!m) return pattern == text;
    // A capture that an earlier predicate bound must agree.
    for (const auto& [name, value] : m->captures) {
      const auto bound = op.captures.find(name);
      if (bound != op.captures.end() && bound->second != value) return false;
    }
    op.captures.insert(m->captures.begin(), m->captures.end());
    return true;
  };
  switch (kind) {
    case ast::MatchKind::kPath: return glob(o.path);
    case ast::MatchKind::kName: return glob(o.name);
    case ast::MatchKind::kOp: return o.kind == pattern;
    case ast::MatchKind::kParam:
      return std::any_of(o.inputs.begin(), o.inputs.end(), [&](ir::ValueId v) {
        return v.valid() && model.value(v).kind == ir::ValueKind::kParameter && glob(model.params[model.value(v).param.index()].name);
      });
    case ast::MatchKind::kInput:
      return std::any_of(o.inputs.begin(), o.inputs.end(), [&](ir::ValueId v) {
        return v.valid() && model.value(v).kind == ir::ValueKind::kInput && model.value(v).name == pattern;
      });
    case ast::MatchKind::kOutput:
      return std::any_of(o.outputs.begin(), o.outputs.end(), [&](ir::ValueId v) {
        return model.value(v).name == pattern && std::find(model.outputs.begin(), model.outputs.end(), v) != model.outputs.end();
      });
  }
  return false;
}

Result Evaluator::eval_match(const Expr& e, Module& module, const Scope* scope, OpContext* op) {
  if (!op) {
    error(Code::E0202, e.span, fmt::format("`{} ...` speaks of an operation; it has a meaning after `where` only", ast::match_text(e.match)));
    return std::nullopt;
  }
  const Result pattern = eval(*e.children[0], module, scope);
  if (!pattern || pattern->unknown()) return pattern;
  const auto* text = pattern->get<std::string>();
  if (!text) {
    error(Code::E0202, e.children[0]->span, fmt::format("`{}` needs a string, this is {}", ast::match_text(e.match), kind_name(*pattern)));
    return std::nullopt;
  }
  return Value{op_matches(e.match, *text, *op)};
}

}  // namespace piper::frontend
