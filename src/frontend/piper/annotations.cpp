#include "frontend/piper/annotations.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "support/strings.h"

namespace piper::frontend {

using ast::Expr;
using support::Code;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Least possible largest sum of `groups` runs, by dynamic programming over suffixes; `sums` are prefix sums.
double least_largest(const std::vector<double>& sums, size_t groups) {
  const size_t count = sums.size() - 1;
  std::vector<double> best(count + 1, kInfinite), next(count + 1);
  best[count] = 0;
  for (size_t g = 1; g <= groups; ++g) {
    std::fill(next.begin(), next.end(), kInfinite);
    for (size_t i = 0; i + g <= count; ++i) {
      for (size_t j = i + 1; j + g <= count + 1; ++j) {
        const double sum = sums[j] - sums[i];
        if (sum >= next[i]) break;  // longer runs only cost more
        next[i] = std::min(next[i], std::max(sum, best[j]));
      }
    }
    std::swap(best, next);
  }
  return best[0];
}

std::vector<bool> parameter_dependence(const ir::Model& model) {
  std::vector<bool> depends(model.ops.size(), false);
  for (size_t i = 0; i < model.ops.size(); ++i) {
    for (ir::ValueId in : model.ops[i].inputs) {
      if (!in.valid()) continue;
      const ir::Value& value = model.value(in);
      const bool weight = value.kind == ir::ValueKind::kParameter && !(value.param.valid() && model.params[value.param.index()].is_buffer);
      const bool inherited = value.kind == ir::ValueKind::kComputed && value.producer.valid() && depends[value.producer.index()];
      if (weight || inherited) depends[i] = true;
    }
  }
  return depends;
}

void collect_captures(const Expr& e, std::set<std::string>& names) {
  if (e.kind == Expr::Kind::kMatch) {
    for (const std::string& name : support::glob_captures(e.children[0]->text)) names.insert(name);
  }
  for (const auto& child : e.children) collect_captures(*child, names);
}

// The globs of a predicate, for the hint of a rule that matches nothing.
void collect_globs(const Expr& e, std::vector<std::string>& globs) {
  if (e.kind == Expr::Kind::kMatch) globs.push_back(e.children[0]->text);
  for (const auto& child : e.children) collect_globs(*child, globs);
}

// How much a path looks like a glob: common components first, then similar ones.
int likeness(const std::vector<std::string>& parts, const std::string& path) {
  const std::vector<std::string> own = support::split(path, '.');
  int score = 0;
  for (const std::string& part : parts) {
    if (part.empty() || part.find_first_of("*{") != std::string::npos) continue;
    if (std::find(own.begin(), own.end(), part) != own.end()) score += 4;
    else if (!support::did_you_mean(part, own).empty()) score += 3;
  }
  return score;
}

}  // namespace

std::vector<int64_t> balance(const std::vector<double>& costs, int64_t groups) {
  const size_t n = costs.size(), k = static_cast<size_t>(groups);
  std::vector<double> sums(n + 1, 0);
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + std::max(costs[i], 0.0);
  // A little above, so that rounding of the sums does not exclude the optimum itself.
  const double limit = least_largest(sums, k) * (1 + 1e-12);
  // squares[g][i]: least sum of squares when the values from i on form g runs, none above the limit; cut[g][i]: where the
  // first of these runs ends.
  std::vector<std::vector<double>> squares(k + 1, std::vector<double>(n + 1, kInfinite));
  std::vector<std::vector<size_t>> cut(k + 1, std::vector<size_t>(n + 1, 0));
  squares[0][n] = 0;
  for (size_t g = 1; g <= k; ++g) {
    for (size_t i = 0; i + g <= n; ++i) {
      for (size_t j = i + 1; j + g <= n + 1; ++j) {
        const double sum = sums[j] - sums[i];
        if (sum > limit) break;
        const double total = sum * sum + squares[g - 1][j];
        // Better by more than rounding: ties keep the shorter first run.
        if (squares[g][i] == kInfinite || total < squares[g][i] * (1 - 1e-12)) {
          squares[g][i] = total;
          cut[g][i] = j;
        }
      }
    }
  }
  std::vector<int64_t> group(n, 0);
  for (size_t g = k, begin = 0; g > 0; --g) {
    const size_t end = cut[g][begin];
    for (size_t i = begin; i < end; ++i) group[i] = static_cast<int64_t>(k - g);
    begin = end;
  }
  return group;
}

Annotator::Annotator(Evaluator& evaluator, support::Diagnostics& diagnostics, const ir::Model& model, const std::function<double(ir::OpId)>& flops)
    : evaluator_(evaluator), diagnostics_(diagnostics), model_(model), flops_(flops), depends_(parameter_dependence(model)), tags_(model.ops.size()), tag_spans_(model.ops.size()) {}

void Annotator::apply(const ast::Tag& tag, support::SourceSpan span, Module& module, const Scope* scope, std::vector<ir::TagRule>& out) {
  ir::TagRule rule;
  rule.name = tag.name.text;
  rule.span = span;
  const int errors = diagnostics_.error_count();
  if (tag.value->kind == Expr::Kind::kCall && tag.value->module.text.empty() && tag.value->text == "balanced") {
    apply_balanced(tag, span, module, scope, rule);
    if (diagnostics_.error_count() == errors) record(std::move(rule), out);
    return;
  }
  const std::set<std::string> captures = captures_of(tag, module);
  for (size_t i = 0; i < model_.ops.size() && diagnostics_.error_count() == errors; ++i) {
    OpContext op;
    op.names = &captures;
    op.model = &model_;
    op.op = ir::OpId(static_cast<int64_t>(i));
    op.tags = &tags_[i];
    if (tag.where) {
      const auto wanted = evaluator_.boolean(*tag.where, module, scope, &op, "what follows `where`");
      if (!wanted) return;
      if (!*wanted || op.undefined) continue;
    }
    const Result value = evaluator_.eval(*tag.value, module, scope, &op);
    if (!value) return;
    if (op.undefined) continue;
    if (const int64_t* v = value->get<int64_t>()) {
      rule.ops.emplace_back(op.op, *v);
    } else {
      evaluator_.error(Code::E0202, tag.value->span, fmt::format("a tag's value is an integer, this is {}", kind_name(*value)));
      return;
    }
  }
  if (diagnostics_.error_count() > errors) return;
  if (rule.ops.empty()) return report_nothing(tag);
  record(std::move(rule), out);
}

std::set<std::string> Annotator::captures_of(const ast::Tag& tag, const Module& module) {
  std::set<std::string> names;
  if (tag.where) collect_captures(*tag.where, names);
  for (const std::string& name : names) {
    const auto& tags = evaluator_.tag_names;
    const bool is_tag = std::find(tags.begin(), tags.end(), name) != tags.end();
    if (!is_tag && !module.values.count(name) && !module.lets.count(name)) continue;
    if (!warned_.insert({tag.where->span.begin, name}).second) continue;
    diagnostics_.report(Code::W0201, tag.where->span, fmt::format("the capture `{{{}}}` hides the {} `{}`", name, is_tag ? "tag" : "name", name))
        .help("give the capture another name");
  }
  return names;
}

void Annotator::report_nothing(const ast::Tag& tag) {
  auto& d = evaluator_.error(Code::E0301, tag.where ? tag.where->span : tag.name.span, fmt::format("the tag `{}` matches no operation of the model", tag.name.text));
  std::vector<std::string> globs, parts;
  if (tag.where) collect_globs(*tag.where, globs);
  for (const std::string& glob : globs) {
    for (std::string& part : support::split(glob, '.')) parts.push_back(std::move(part));
  }
  std::set<std::string> distinct;
  for (const ir::Op& op : model_.ops) {
    if (!op.path.empty()) distinct.insert(op.path);
  }
  std::vector<std::string> paths(distinct.begin(), distinct.end());
  std::stable_sort(paths.begin(), paths.end(), [&](const auto& a, const auto& b) { return likeness(parts, a) > likeness(parts, b); });
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(paths.size(), kShown); ++i) shown.push_back(fmt::format("`{}`", paths[i]));
  if (!shown.empty()) d.note(fmt::format("the nearest paths are {}{}", support::join(shown, ", "), paths.size() > kShown ? ", ..." : ""));
  d.help("`piper inspect` lists the paths of a model");
}

void Annotator::apply_balanced(const ast::Tag& tag, support::SourceSpan span, Module& module, const Scope* scope, ir::TagRule& rule) {
  const Expr& call = *tag.value;
  if (call.bindings.size() != 2 || call.bindings[0].value->kind != Expr::Kind::kName || tag.where) {
    evaluator_.error(Code::E0205, call.span, "`balanced` takes the name of a tag and a number of groups, without `where`")
        .help("for example `tag stage = balanced(layer, pp)`");
    return;
  }
  const std::string& base = call.bindings[0].value->text;
  const auto groups = evaluator_.integer(*call.bindings[1].value, module, scope, "the number of groups");
  if (!groups) return;
  std::map<int64_t, double> costs;
  for (size_t i = 0; i < tags_.size(); ++i) {
    if (const auto it = tags_[i].find(base); it != tags_[i].end()) costs[it->second] += flops_(ir::OpId(static_cast<int64_t>(i)));
  }
  if (costs.empty()) {
    auto& d = evaluator_.error(Code::E0303, call.bindings[0].value->span, fmt::format("no operation has the tag `{}`", base));
    const std::string meant = support::did_you_mean(base, evaluator_.tag_names);
    const bool known = std::find(evaluator_.tag_names.begin(), evaluator_.tag_names.end(), base) != evaluator_.tag_names.end();
    if (known) d.help("a `tag` statement must come before what reads it");
    else if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
    return;
  }
  if (*groups < 1 || *groups > static_cast<int64_t>(costs.size())) {
    evaluator_.error(Code::E0302, span, fmt::format("`{}` has {} value{}, cannot make {} group{}", base, costs.size(), costs.size() == 1 ? "" : "s", *groups, *groups == 1 ? "" : "s"))
        .help(*groups < 1 ? "a number of groups is at least 1" : "use fewer groups, or a tag with more values");
    return;
  }
  size_t first = tags_.size(), last = 0;
  for (size_t i = 0; i < tags_.size(); ++i) {
    if (!tags_[i].count(base)) continue;
    first = std::min(first, i);
    last = i;
  }
  // What comes before the first value is computed with it, what comes after the last with that.
  for (size_t i = 0; i < tags_.size(); ++i) {
    if (i < first) costs.begin()->second += flops_(ir::OpId(static_cast<int64_t>(i)));
    if (i > last) costs.rbegin()->second += flops_(ir::OpId(static_cast<int64_t>(i)));
  }
  std::vector<double> list;
  for (const auto& [value, cost] : costs) list.push_back(cost);
  const std::vector<int64_t> group = balance(list, *groups);
  std::map<int64_t, int64_t> group_of;
  for (const auto& [value, cost] : costs) group_of.emplace(value, group[group_of.size()]);
  for (size_t i = 0; i < tags_.size(); ++i) {
    const ir::OpId id(static_cast<int64_t>(i));
    if (const auto it = tags_[i].find(base); it != tags_[i].end()) rule.ops.emplace_back(id, group_of[it->second]);
    // What depends on no parameter (a mask, positions) is left to adoption, which may clone it into every user.
    else if (i < first && depends_[i]) rule.ops.emplace_back(id, 0);
    else if (i > last && depends_[i]) rule.ops.emplace_back(id, *groups - 1);
  }
}

void Annotator::record(ir::TagRule rule, std::vector<ir::TagRule>& out) {
  for (const auto& [op, value] : rule.ops) {
    const auto [it, fresh] = tags_[op.index()].emplace(rule.name, value);
    if (fresh) {
      tag_spans_[op.index()][rule.name] = rule.span;
    } else if (it->second != value) {
      diagnostics_
          .report(Code::E0511, rule.span, fmt::format("the tag `{}` of operation `{}` is {} here, and {} by an earlier rule", rule.name, model_.op(op).name, value, it->second))
          .label(tag_spans_[op.index()][rule.name], fmt::format("{} here", it->second));
      return;
    }
  }
  // A rule that runs again in a loop with the same name adds to the values.
  std::set<int64_t> values;
  for (const auto& tags : tags_) {
    if (const auto it = tags.find(rule.name); it != tags.end()) values.insert(it->second);
  }
  evaluator_.tag_counts[rule.name] = static_cast<int64_t>(values.size());
  out.push_back(std::move(rule));
}

}  // namespace piper::frontend
