// Names in scope and the files they come from.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/piper/ast.h"
#include "frontend/piper/values.h"

namespace piper::frontend {

// One parsed file: its definitions by name, and the files it uses.
struct Module {
  std::string name;  // as `use`d; empty for the strategy itself
  ast::File file;
  std::map<std::string, const ast::Fn*> functions;
  std::map<std::string, const ast::Let*> lets;
  std::map<std::string, const ast::Param*> params;
  std::map<std::string, Value> values;      // evaluated lets and params
  std::map<std::string, Module*> uses;
  std::vector<std::string> evaluating;      // lets on the way, to find cycles
};

// A chain of local names; a function call starts a new chain.
struct Scope {
  const Scope* outer = nullptr;
  std::string name;
  Value value;

  const Value* find(const std::string& wanted) const {
    for (const Scope* s = this; s; s = s->outer) {
      if (s->name == wanted) return &s->value;
    }
    return nullptr;
  }
};

}  // namespace piper::frontend
