// The syntax tree of a `.piper` file: plain data with spans, made by parse.cpp and read by the evaluator.
// Depth is bounded (kMaxDepth in parse.h), so that walking it by recursion is safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "support/source.h"

namespace piper::frontend::ast {

using support::SourceSpan;

struct Name {
  std::string text;
  SourceSpan span;
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class Op { kOr, kAnd, kNot, kEq, kNe, kLt, kLe, kGt, kGe, kRange, kAdd, kSub, kMul, kDiv, kMod, kNeg, kConcat, kOverlap };
std::string_view op_text(Op op);

// `name = value`, in calls (the name may be empty), meshes and device sets.
struct Binding {
  Name name;
  ExprPtr value;
};

// A constraint of a selector; no value and not `present`: absent.
struct TagConstraint {
  Name tag;
  ExprPtr value;
  bool present = false;
};

// `for name in list if c if d`
struct Loop {
  Name name;
  ExprPtr list;
  std::vector<ExprPtr> conditions;
};

enum class MatchKind { kPath, kName, kOp, kParam, kInput, kOutput };
std::string_view match_text(MatchKind kind);

struct Expr {
  enum class Kind {
    kInt,            // integer
    kFloat,          // number
    kBool,           // integer 0 or 1
    kSize,           // integer, in bytes
    kString,         // text
    kName,           // text
    kUnary,          // op, children[0]
    kBinary,         // op, children[0..1]
    kIndex,          // children[0] [ children[1] ]
    kLet,            // let text = children[0] in children[1]
    kIf,             // if children[0] then children[1] else children[2]
    kAssert,         // assert children[0], children[1] in children[2]
    kMatch,          // match, children[0]: a string or a name
    kHas,            // has text
    kSelector,       // text is a pass letter or "all", constraints
    kDevices,        // text [ bindings ]
    kCall,           // module.text ( bindings )
    kComprehension,  // [ children[0] loops ]
    kList,           // children
  };
  Kind kind = Kind::kInt;
  SourceSpan span;
  Op op = Op::kAdd;
  MatchKind match = MatchKind::kPath;
  bool parenthesised = false;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  Name module;  // of kCall: the part before the dot, or empty
  std::vector<ExprPtr> children;
  std::vector<Binding> bindings;
  std::vector<TagConstraint> constraints;
  std::vector<Loop> loops;
};

// A clause after a directive: `zero 1`, `reduce_dtype bf16`. Either a value or a bare word.
struct Clause {
  Name word;
  ExprPtr value;
  Name bare;
};

struct StringAt {
  std::string text;
  SourceSpan span;
};

struct Statement;

struct Use { Name name; std::optional<StringAt> file; };
struct Param { Name name; ExprPtr value; std::string doc; };
struct Let { Name name; ExprPtr value; };
struct Fn { Name name; std::vector<Name> params; ExprPtr body; };
struct Mesh { Name name; std::vector<Binding> axes; };
struct Dim { StringAt name; ExprPtr value; };
struct Treat { StringAt glob; Name kind; };
struct Tag { Name name; ExprPtr value; ExprPtr where; };
struct Place { ExprPtr selector, devices; std::vector<Clause> clauses; };
struct Replicate { ExprPtr selector; Name axis; std::vector<Clause> clauses; };
struct ShardExperts { ExprPtr selector; Name axis; std::vector<Clause> clauses; };
struct ShardParam { StringAt glob; ExprPtr dim; Name axis; };
struct Split { ExprPtr selector, count; Name dim; };
struct Order { ExprPtr list; };
struct Recompute { ExprPtr selector; };
struct Stream { ExprPtr name; std::vector<Clause> clauses; };
struct Freeze { StringAt glob; };
struct Tie { StringAt a, b; bool transposed = false; };
struct Assert { ExprPtr condition, why; };
struct For { Name name; ExprPtr list; std::vector<Statement> body; };
struct If { ExprPtr condition; std::vector<Statement> body, otherwise; };
// One line of `train { }`: `word value`, `word bare`, or `word param "glob" [value]`.
struct TrainItem { Name word; ExprPtr value; Name bare; StringAt glob; SourceSpan span; };
struct Train { std::vector<TrainItem> items; };

struct Statement {
  SourceSpan span;
  std::variant<Use, Param, Let, Fn, Mesh, Dim, Treat, Tag, Place, Replicate, ShardExperts, ShardParam, Split, Order, Recompute,
               Stream, Freeze, Tie, Assert, For, If, Train>
      node;
};

struct File {
  std::vector<Statement> statements;
  std::map<std::string, int> words;  // how often each word stands in the text, comments aside
};

}  // namespace piper::frontend::ast
