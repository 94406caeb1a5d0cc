// Evaluation of expressions. Every evaluation has a budget of steps and a bounded depth; running out is an error that
// names the call. A mistake is reported once and the result is nothing.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "frontend/piper/scope.h"
#include "ir/model.h"
#include "support/diagnostics.h"

namespace piper::frontend {

using Result = std::optional<Value>;

constexpr int64_t kStepBudget = 10'000'000;
constexpr int kEvalDepth = 20'000;  // nested evaluations; big_stack.h has the stack for them

// What a predicate is asked about: an operation of the model.
struct OpContext {
  const ir::Model* model = nullptr;
  ir::OpId op;
  const std::map<std::string, int64_t>* tags = nullptr;  // earlier tags of the operation
  const std::set<std::string>* names = nullptr;          // every capture of the statement
  std::map<std::string, int64_t> captures;               // filled by `path "layers.{i}"`
  bool undefined = false;                                // a tag or capture that the operation does not have was read
};

class Evaluator {
 public:
  explicit Evaluator(support::Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  Result eval(const ast::Expr& e, Module& module, const Scope* scope = nullptr, OpContext* op = nullptr);

  // Typed results; another kind is an error that says what was expected as what.
  std::optional<int64_t> integer(const ast::Expr& e, Module& module, const Scope* scope, const std::string& what);
  std::optional<bool> boolean(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op, const std::string& what);

  const ir::Mesh* mesh = nullptr;
  // Distinct values of a tag in the model; unknown without one.
  std::map<std::string, int64_t> tag_counts;
  bool have_model = false;
  bool in_header = true;  // the model is read later
  std::vector<std::string> tag_names;

  // Reports once per place and message, with the calls and loops that led there.
  support::Diagnostic& error(support::Code code, support::SourceSpan span, std::string message);
  // A `for` statement's variable, for the notes of errors; pop it when the round is over.
  void enter_loop(const std::string& name, const Value& value) { loops_.emplace_back(name, value); }
  void leave_loop() { loops_.pop_back(); }
  // The values of the names in an expression, to explain why it does not hold: "`m` = 11, `p` = 4".
  std::string values_of(const ast::Expr& e, Module& module, const Scope* scope);
  // Where to report what a library function got wrong: the outermost call in the strategy, else the span itself.
  support::SourceSpan user_span(support::SourceSpan span) const;

 private:
  struct Frame {
    std::string name;
    support::SourceSpan call;
  };
  // Takes steps from the budget; false, with one error, when it is used up.
  bool spend(int64_t steps, const ast::Expr& e);
  void stop(const ast::Expr& e, std::string message, std::string note);
  // An operand of `and`, `or`, `not`: what an operation does not have makes a comparison false.
  Result eval_operand(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_logic(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_range(const ast::Expr& e, int64_t begin, int64_t end, int64_t by);
  Result eval_size_arithmetic(const ast::Expr& e, const Value& a, const Value& b);
  Result eval_inner(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_name(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_unary(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_binary(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_arithmetic(const ast::Expr& e, const Value& a, const Value& b);
  Result eval_compare(const ast::Expr& e, const Value& a, const Value& b);
  Result eval_index(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_selector(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_devices(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_comprehension(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  bool run_loops(const ast::Expr& e, size_t loop, Module& module, const Scope* scope, OpContext* op, std::vector<Value>& out);
  Result eval_match(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result eval_call(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result call_function(const ast::Fn& fn, const ast::Expr& e, Module& home, Module& module, const Scope* scope, OpContext* op);
  Result call_builtin(const ast::Expr& e, Module& module, const Scope* scope, OpContext* op);
  Result apply_builtin(const ast::Expr& e, const std::vector<Value>& args);
  Result count_or_ranks(const ast::Expr& e);
  Result global(const std::string& name, Module& module);

  support::Diagnostics& diagnostics_;
  std::set<std::tuple<support::Code, int32_t, int32_t, std::string>> reported_;
  support::Diagnostic scratch_;  // takes what is said about an error that was reported before
  std::vector<Frame> frames_;
  std::vector<std::pair<std::string, Value>> loops_;
  int64_t steps_ = 0;
  int depth_ = 0;
  bool exhausted_ = false;
};

// Whether a predicate form matches the operation; captures are added.
bool op_matches(ast::MatchKind kind, const std::string& pattern, OpContext& op);
const std::vector<std::string>& builtin_names();

}  // namespace piper::frontend
