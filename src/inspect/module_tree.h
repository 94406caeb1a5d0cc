// The tree of a model's modules, with what each holds and costs; and how equal siblings fold into one row.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/model.h"

namespace piper::inspect {

// A module: what it holds by itself and below.
struct Module {
  std::string name;  // last component of its path
  std::string path;  // "" is the whole model
  int ops = 0;
  double flops = 0;                               // forward, of one more sample
  int64_t saved_bytes = 0;                        // values kept for the backward, of one sample
  int64_t activation_bytes = 0;                   // what its operations write for one sample
  std::set<int32_t> params;                       // ids, each once however often it is read
  std::string output;                             // type of the last value it computes
  int32_t first_op = 0;                           // in topological order
  std::string structure;                          // equal for modules that differ in nothing but their names and values
  std::vector<std::unique_ptr<Module>> children;  // in order of first use
  std::unordered_map<std::string, Module*> by_name;
};

// `saved`: bytes kept for the backward by operation, as of saved_bytes(); may be empty. `typed`: whether values have
// types.
Module module_tree(const ir::Model& model, const std::vector<int64_t>& saved, bool typed);

// Siblings that are shown as one: themselves, or items of a list of equal structure.
struct Group {
  std::vector<const Module*> modules;
  std::string label;  // "h.{0..3}", "layers.{0,2}", "wte"
};

// The children of a module as rows: a list of modules, whose children are numbers, is replaced by its items, those of
// equal structure in one group.
std::vector<Group> grouped_children(const Module& module);

// Whether all children of a module are called by numbers: a list such as nn.ModuleList or nn.Sequential.
bool is_list(const Module& module);

int64_t param_elements(const ir::Model& model, const std::set<int32_t>& params);
int64_t param_bytes(const ir::Model& model, const std::set<int32_t>& params);
int64_t bytes_of(const ir::TensorType& type, int64_t batch);

// "0..3, 5, 7": runs of numbers, for people.
std::string number_ranges(const std::vector<int64_t>& sorted);

}  // namespace piper::inspect
