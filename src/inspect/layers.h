// Where a model can be cut into stages: its repeated modules, in the order they run.
#pragma once

#include <string>
#include <vector>

#include "inspect/module_tree.h"

namespace piper::inspect {

// A list of modules, `layers.0` to `layers.31`, or a single module.
struct LayerRule {
  std::string path;              // "model.layers", "stem"
  std::vector<int64_t> numbers;  // of a list's items, ascending; empty for a single module
  int64_t offset = 0;            // value of the tag `layer` of item 0, or of the single module
  std::string glob() const;      // "model.layers.{i}.**", "stem.**"
  std::string value() const;     // "i", "4 + i", "7"
};

struct Layers {
  std::vector<LayerRule> rules;  // in the order they run
  int64_t count = 0;             // distinct values of the tag
  std::string problem;           // when there are no rules: why
};

// Lists of at least two modules that are in no other list, in order of first use.
std::vector<LayerRule> outermost_lists(const Module& root);

// Rules for at least `stages` layers if the model has that many, such that no value flows from a later layer to an
// earlier.
Layers find_layers(const ir::Model& model, const Module& root, int64_t stages);

}  // namespace piper::inspect
