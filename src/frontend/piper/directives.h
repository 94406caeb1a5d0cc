// Directives evaluated into a Strategy.
#pragma once

#include "frontend/piper/evaluator.h"

namespace piper::frontend {

class DirectiveEvaluator {
 public:
  DirectiveEvaluator(Evaluator& evaluator, support::Diagnostics& diagnostics, ir::Strategy& strategy)
      : evaluator_(evaluator), diagnostics_(diagnostics), strategy_(strategy) {}

  // One statement and what is in it; definitions, tags and the train block are not its business.
  void run(const ast::Statement& statement, Module& module, const Scope* scope);

 private:
  void place(const ast::Place& s, support::SourceSpan span, Module& module, const Scope* scope);
  void replicate(const ast::Replicate& s, support::SourceSpan span, Module& module, const Scope* scope);
  void shard_experts(const ast::ShardExperts& s, support::SourceSpan span, Module& module, const Scope* scope);
  void shard_param(const ast::ShardParam& s, support::SourceSpan span, Module& module, const Scope* scope);
  void split(const ast::Split& s, support::SourceSpan span, Module& module, const Scope* scope);
  void order(const ast::Order& s, support::SourceSpan span, Module& module, const Scope* scope);
  void stream(const ast::Stream& s, support::SourceSpan span, Module& module, const Scope* scope);
  void loop(const ast::For& s, Module& module, const Scope* scope);

  std::optional<ir::Selector> all_selector(const ast::Expr& e, Module& module, const Scope* scope, const char* directive);
  std::optional<int> axis(const ast::Name& name);
  std::optional<std::string> text(const ast::Expr& e, Module& module, const Scope* scope, const std::string& what);

  Evaluator& evaluator_;
  support::Diagnostics& diagnostics_;
  ir::Strategy& strategy_;
};

}  // namespace piper::frontend
