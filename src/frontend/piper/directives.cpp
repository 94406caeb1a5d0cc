#include "frontend/piper/directives.h"

#include <fmt/format.h>

#include <set>

#include "support/strings.h"

namespace piper::frontend {

using support::Code;
using support::SourceSpan;

void DirectiveEvaluator::run(const ast::Statement& statement, Module& module, const Scope* scope) {
  const SourceSpan span = statement.span;
  if (const auto* s = std::get_if<ast::Place>(&statement.node)) return place(*s, span, module, scope);
  if (const auto* s = std::get_if<ast::Replicate>(&statement.node)) return replicate(*s, span, module, scope);
  if (const auto* s = std::get_if<ast::ShardExperts>(&statement.node)) return shard_experts(*s, span, module, scope);
  if (const auto* s = std::get_if<ast::ShardParam>(&statement.node)) return shard_param(*s, span, module, scope);
  if (const auto* s = std::get_if<ast::Split>(&statement.node)) return split(*s, span, module, scope);
  if (const auto* s = std::get_if<ast::Order>(&statement.node)) return order(*s, span, module, scope);
  if (const auto* s = std::get_if<ast::Stream>(&statement.node)) return stream(*s, span, module, scope);
  if (const auto* s = std::get_if<ast::For>(&statement.node)) return loop(*s, module, scope);
  if (const auto* s = std::get_if<ast::Recompute>(&statement.node)) {
    if (auto sel = all_selector(*s->selector, module, scope, "recompute")) strategy_.recomputes.push_back({std::move(*sel), span});
  } else if (const auto* f = std::get_if<ast::Freeze>(&statement.node)) {
    strategy_.freezes.push_back({f->glob.text, span});
  } else if (const auto* t = std::get_if<ast::Tie>(&statement.node)) {
    strategy_.ties.push_back({t->a.text, t->b.text, t->transposed, span});
  } else if (const auto* a = std::get_if<ast::Assert>(&statement.node)) {
    const auto ok = evaluator_.eval(*a->condition, module, scope);
    const auto why = evaluator_.eval(*a->why, module, scope);
    if (!ok || !why || ok->unknown()) return;
    if (!ok->get<bool>()) {
      evaluator_.error(Code::E0202, a->condition->span, fmt::format("an assertion must be a boolean, this is {}", kind_name(*ok)));
    } else if (!*ok->get<bool>()) {
      auto& d = evaluator_.error(Code::E0206, a->condition->span, why->get<std::string>() ? *why->get<std::string>() : to_string(*why));
      if (std::string values = evaluator_.values_of(*a->condition, module, scope); !values.empty()) d.note("here " + values);
    }
  } else if (const auto* c = std::get_if<ast::If>(&statement.node)) {
    const auto ok = evaluator_.eval(*c->condition, module, scope);
    if (!ok || ok->unknown()) return;
    if (!ok->get<bool>()) {
      evaluator_.error(Code::E0202, c->condition->span, fmt::format("a condition must be a boolean, this is {}", kind_name(*ok)));
      return;
    }
    for (const auto& inner : *ok->get<bool>() ? c->body : c->otherwise) run(inner, module, scope);
  }
}

void DirectiveEvaluator::loop(const ast::For& s, Module& module, const Scope* scope) {
  const auto list = evaluator_.eval(*s.list, module, scope);
  if (!list || list->unknown()) return;
  const List* items = list->get<List>();
  if (!items) {
    evaluator_.error(Code::E0202, s.list->span, fmt::format("`for` needs a list, this is {}", kind_name(*list)));
    return;
  }
  for (const Value& item : **items) {
    const int before = diagnostics_.error_count();
    const Scope inner{scope, s.name.text, item};
    evaluator_.enter_loop(s.name.text, item);
    for (const auto& statement : s.body) run(statement, module, &inner);
    evaluator_.leave_loop();
    if (diagnostics_.error_count() > before) return;  // the other rounds would say the same
  }
}

std::optional<ir::Selector> DirectiveEvaluator::all_selector(const ast::Expr& e, Module& module, const Scope* scope, const char* directive) {
  const auto r = evaluator_.eval(e, module, scope);
  if (!r || r->unknown()) return std::nullopt;
  const auto* s = r->get<ir::Selector>();
  if (s && s->passes == ir::kPassAll) return *s;
  auto& d = evaluator_.error(Code::E0304, e.span, s ? fmt::format("`{}` takes `all(...)`, not a single pass", directive)
                                                    : fmt::format("`{}` takes a selector, this is {}", directive, kind_name(*r)));
  if (s) d.help("only `order` speaks of passes");
  return std::nullopt;
}

std::optional<int> DirectiveEvaluator::axis(const ast::Name& name) {
  const int index = strategy_.mesh.axis_index(name.text);
  if (index >= 0) return index;
  std::vector<std::string> names;
  for (const auto& a : strategy_.mesh.axes) names.push_back(a.name);
  auto& d = evaluator_.error(Code::E0303, name.span, fmt::format("the mesh has no axis `{}`", name.text));
  const std::string meant = support::did_you_mean(name.text, names);
  d.note(names.empty() ? std::string("the file has no mesh") : fmt::format("its axes are {}", support::join(names, ", ")));
  if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
  return std::nullopt;
}

std::optional<std::string> DirectiveEvaluator::text(const ast::Expr& e, Module& module, const Scope* scope, const std::string& what) {
  const auto r = evaluator_.eval(e, module, scope);
  if (!r || r->unknown()) return std::nullopt;
  if (const auto* s = r->get<std::string>()) return *s;
  evaluator_.error(Code::E0202, e.span, fmt::format("{} must be a string, this is {}", what, kind_name(*r)));
  return std::nullopt;
}

void DirectiveEvaluator::place(const ast::Place& s, SourceSpan span, Module& module, const Scope* scope) {
  auto selector = all_selector(*s.selector, module, scope, "place");
  const auto devices = evaluator_.eval(*s.devices, module, scope);
  if (!selector || !devices || devices->unknown()) return;
  const auto* set = devices->get<ir::DeviceSet>();
  if (!set) {
    evaluator_.error(Code::E0304, s.devices->span, fmt::format("what follows `on` is a set of devices, this is {}", kind_name(*devices)))
        .help(fmt::format("for example `on {}[pp = 0]`", strategy_.mesh.name));
    return;
  }
  ir::Place place{std::move(*selector), *set, "p2p", span};
  for (const ast::Clause& c : s.clauses) {
    if (auto t = text(*c.value, module, scope, "a stream")) place.p2p_stream = *t;
  }
  strategy_.places.push_back(std::move(place));
}

void DirectiveEvaluator::replicate(const ast::Replicate& s, SourceSpan span, Module& module, const Scope* scope) {
  auto selector = all_selector(*s.selector, module, scope, "replicate");
  const auto over = axis(s.axis);
  if (!selector || !over) return;
  ir::Replicate r;
  r.selector = std::move(*selector);
  r.axis = *over;
  r.span = span;
  for (const ast::Clause& c : s.clauses) {
    const std::string& word = c.word.text;
    if (word == "reduce_dtype") {
      ir::DType dtype;
      if (ir::dtype_parse(c.bare.text, &dtype) && (dtype == ir::DType::kF32 || dtype == ir::DType::kBF16)) r.reduce_dtype = dtype;
      else evaluator_.error(Code::E0304, c.bare.span, "`reduce_dtype` is `f32` or `bf16`");
    } else if (word == "reduce_stream" || word == "gather_stream") {
      if (auto t = text(*c.value, module, scope, "a stream")) (word == "reduce_stream" ? r.reduce_stream : r.gather_stream) = *t;
    } else if (word == "bucket") {
      const auto v = evaluator_.eval(*c.value, module, scope);
      const Size* size = v ? v->get<Size>() : nullptr;
      if (size && size->bytes > 0) r.bucket_bytes = size->bytes;
      else if (v) evaluator_.error(Code::E0304, c.value->span, fmt::format("`bucket` must be a size above zero, this is {}", kind_name(*v))).help("for example `bucket 25MiB`");
    } else {
      const auto n = evaluator_.integer(*c.value, module, scope, fmt::format("`{}`", word));
      if (!n) continue;
      const bool zero = word == "zero";
      if (*n < 0 || (zero && *n > 3)) evaluator_.error(Code::E0304, c.value->span, zero ? fmt::format("`zero` is 0 to 3, not {}", *n) : fmt::format("`{}` must not be negative", word));
      else if (zero) r.zero = static_cast<int>(*n);
      else r.prefetch = *n;
    }
  }
  strategy_.replicates.push_back(std::move(r));
}

void DirectiveEvaluator::shard_experts(const ast::ShardExperts& s, SourceSpan span, Module& module, const Scope* scope) {
  auto selector = all_selector(*s.selector, module, scope, "shard");
  const auto over = axis(s.axis);
  if (!selector || !over) return;
  ir::ShardExperts out{std::move(*selector), *over, "a2a", std::nullopt, span};
  for (const ast::Clause& c : s.clauses) {
    if (c.word.text == "a2a_stream") {
      if (auto t = text(*c.value, module, scope, "a stream")) out.a2a_stream = *t;
      continue;
    }
    const auto v = evaluator_.eval(*c.value, module, scope);
    double load = 0;
    if (v && as_number(*v, &load) && load >= 1) out.max_load = load;
    else if (v) evaluator_.error(Code::E0304, c.value->span, "`max_load` must be a number of at least 1");
  }
  strategy_.shard_experts.push_back(std::move(out));
}

void DirectiveEvaluator::shard_param(const ast::ShardParam& s, SourceSpan span, Module& module, const Scope* scope) {
  const auto dim = evaluator_.integer(*s.dim, module, scope, "`dim`");
  const auto over = axis(s.axis);
  if (dim && over) strategy_.shard_params.push_back({s.glob.text, *dim, *over, span});
}

void DirectiveEvaluator::split(const ast::Split& s, SourceSpan span, Module& module, const Scope* scope) {
  auto selector = all_selector(*s.selector, module, scope, "split");
  const auto count = evaluator_.integer(*s.count, module, scope, "the number of microbatches");
  if (!selector || !count) return;
  if (!selector->constraints.empty()) {
    evaluator_.error(Code::E0304, s.selector->span, "`split` is given over `all()`");
  } else if (*count < 1) {
    evaluator_.error(Code::E0304, s.count->span, fmt::format("{} microbatches", *count)).help("a number of microbatches is at least 1");
  } else if (strategy_.split) {
    evaluator_.error(Code::E0304, span, "`split` is given twice").label(strategy_.split->span, "first here");
  } else {
    strategy_.split = ir::Split{*count, s.dim.text, span};
  }
}

namespace {

// Elements of an order: selectors and groups, lists inside are taken apart.
bool add_elements(const Value& v, std::vector<ir::OrderElement>& out, std::string& wrong) {
  if (const auto* s = v.get<ir::Selector>()) {
    out.push_back({{*s}});
    return true;
  }
  if (const auto* g = v.get<Group>()) {
    out.push_back({g->selectors});
    return true;
  }
  wrong = kind_name(v);
  return v.unknown();
}

}  // namespace

void DirectiveEvaluator::order(const ast::Order& s, SourceSpan span, Module& module, const Scope* scope) {
  const auto r = evaluator_.eval(*s.list, module, scope);
  if (!r || r->unknown()) return;
  const List* items = r->get<List>();
  if (!items) {
    evaluator_.error(Code::E0304, s.list->span, fmt::format("`order` takes a list, this is {}", kind_name(*r)));
    return;
  }
  ir::Order order;
  order.span = span;
  for (const Value& v : **items) {
    std::string wrong;
    if (add_elements(v, order.elements, wrong)) continue;
    auto& d = evaluator_.error(Code::E0304, s.list->span, fmt::format("an element of an `order` is a selector or a group `x | y`, this is {}", wrong));
    if (v.get<List>()) d.help("`flatten(...)` makes one list of a list of lists");
    return;
  }
  strategy_.orders.push_back(std::move(order));
}

void DirectiveEvaluator::stream(const ast::Stream& s, SourceSpan span, Module& module, const Scope* scope) {
  const auto name = text(*s.name, module, scope, "a stream");
  if (!name) return;
  ir::StreamProperties out;
  out.name = *name;
  out.span = span;
  for (const ast::Clause& c : s.clauses) {
    if (c.word.text == "priority") {
      if (c.bare.text != "high") evaluator_.error(Code::E0304, c.bare.span, "a priority is `high`");
      out.high_priority = true;
    } else if (const auto n = evaluator_.integer(*c.value, module, scope, "`sms`")) {
      if (*n < 1) evaluator_.error(Code::E0304, c.value->span, "`sms` must be at least 1");
      out.sms = *n;
    }
  }
  strategy_.streams.push_back(std::move(out));
}

}  // namespace piper::frontend
