// `tag` statements against a model, and the cut of `balanced`.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "frontend/piper/evaluator.h"

namespace piper::frontend {

class Annotator {
 public:
  Annotator(Evaluator& evaluator, support::Diagnostics& diagnostics, const ir::Model& model, const std::function<double(ir::OpId)>& flops);
  // Evaluates one rule; its values are visible to later rules.
  void apply(const ast::Tag& tag, support::SourceSpan span, Module& module, const Scope* scope, std::vector<ir::TagRule>& out);

 private:
  void apply_balanced(const ast::Tag& tag, support::SourceSpan span, Module& module, const Scope* scope, ir::TagRule& rule);
  void record(ir::TagRule rule, std::vector<ir::TagRule>& out);
  void report_nothing(const ast::Tag& tag);
  // Names that the globs of a predicate capture; warns of one that hides a name.
  std::set<std::string> captures_of(const ast::Tag& tag, const Module& module);

  Evaluator& evaluator_;
  support::Diagnostics& diagnostics_;
  const ir::Model& model_;
  const std::function<double(ir::OpId)>& flops_;
  std::set<std::pair<int32_t, std::string>> warned_;
  std::vector<bool> depends_;  // per op: whether its result depends on a parameter (buffers do not count)
  std::vector<std::map<std::string, int64_t>> tags_;                   // per op
  std::vector<std::map<std::string, support::SourceSpan>> tag_spans_;  // where each came from
};

// Cuts consecutive costs into `groups` non-empty runs such that the largest sum is as small as possible; returns the group
// of each. Of equal cuts the one with the least sum of squares, and of those the one whose early groups are lightest:
// early ranks of a pipeline keep more activations. Needs 1 <= groups <= costs.size().
std::vector<int64_t> balance(const std::vector<double>& costs, int64_t groups);

}  // namespace piper::frontend
