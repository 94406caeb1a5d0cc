#include "inspect/module_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ops/op.h"
#include "support/strings.h"

namespace piper::inspect {

using ir::Model;
using ir::Op;
using ir::ValueId;

namespace {

bool is_number(const std::string& name) {
  return !name.empty() && name.size() < 18 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Module* child(Module* parent, const std::string& name) {
  Module*& found = parent->by_name[name];
  if (found == nullptr) {
    parent->children.push_back(std::make_unique<Module>());
    found = parent->children.back().get();
    found->name = name;
    found->path = parent->path.empty() ? name : parent->path + "." + name;
    found->first_op = -1;
  }
  return found;
}

struct OpFacts {
  double flops = 0;
  int64_t saved = 0;
  bool typed = true;
};

void add(Module* module, const Model& model, const Op& op, int32_t index, const OpFacts& facts) {
  if (module->first_op < 0) module->first_op = index;
  module->ops++;
  module->flops += facts.flops;
  module->saved_bytes += facts.saved;
  for (ValueId id : op.inputs) {
    if (id.valid() && model.value(id).param.valid()) module->params.insert(model.value(id).param.value);
  }
  if (!facts.typed) return;
  for (ValueId id : op.outputs) module->activation_bytes += bytes_of(model.value(id).type, 1);
  module->output = to_string(model.value(op.outputs[0]).type);
}

// Its operations with their types, and its children's, as text.
void describe_structure(Module& module, const std::map<const Module*, std::string>& own) {
  const auto it = own.find(&module);
  module.structure = it == own.end() ? "" : it->second;
  for (auto& below : module.children) {
    describe_structure(*below, own);
    module.structure += fmt::format("{}({})", below->name, below->structure);
  }
  // Long texts are compared through their hash.
  if (module.structure.size() > 64)
    module.structure = fmt::format("{:x}:{}", std::hash<std::string>()(module.structure), module.structure.size());
}

std::string op_structure(const Model& model, const Op& op) {
  std::string text = op.kind + "(";
  for (ValueId id : op.inputs) {
    const bool weight = id.valid() && model.value(id).param.valid();
    text += weight ? to_string(model.value(id).type) + "," : ",";
  }
  return text + ")" + to_string(model.value(op.outputs[0]).type) + ";";
}

}  // namespace

int64_t bytes_of(const ir::TensorType& type, int64_t batch) {
  return ir::num_elements(ir::at(type.shape, batch)) * ir::dtype_size(type.dtype);
}

Module module_tree(const Model& model, const std::vector<int64_t>& saved, bool typed) {
  Module root;
  root.name = "(model)";
  std::map<const Module*, std::string> own;
  for (size_t i = 0; i < model.ops.size(); i++) {
    const Op& op = model.ops[i];
    OpFacts facts;
    facts.typed = typed;
    // The cost of one sample: what grows when there is one more.
    if (typed) facts.flops = ops::flops_of(model, op, 2) - ops::flops_of(model, op, 1);
    if (i < saved.size()) facts.saved = saved[i];
    Module* module = &root;
    add(module, model, op, static_cast<int32_t>(i), facts);
    if (!op.path.empty()) {
      for (const std::string& part : support::split(op.path, '.')) {
        module = child(module, part);
        add(module, model, op, static_cast<int32_t>(i), facts);
      }
    }
    // Nodes as exported: one layer may hold glue that all of them share, so only what reads weights tells them apart.
    const bool glue = !typed && std::none_of(op.inputs.begin(), op.inputs.end(),
                                             [&](ValueId v) { return v.valid() && model.value(v).param.valid(); });
    if (!glue) own[module] += op_structure(model, op);
  }
  describe_structure(root, own);
  return root;
}

bool is_list(const Module& module) {
  return !module.children.empty() && std::all_of(module.children.begin(), module.children.end(),
                                                 [](const auto& below) { return is_number(below->name); });
}

std::string number_ranges(const std::vector<int64_t>& sorted) {
  std::vector<std::string> runs;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) end++;
    if (end - begin == 1)
      runs.push_back(std::to_string(sorted[begin]));
    else if (end - begin == 2)
      runs.push_back(fmt::format("{},{}", sorted[begin], sorted[begin + 1]));
    else
      runs.push_back(fmt::format("{}..{}", sorted[begin], sorted[end - 1]));
    begin = end;
  }
  return support::join(runs, ",");
}

namespace {

// The items of a list, those of equal structure in one group.
void add_items(const Module& list, const std::string& prefix, std::vector<Group>& groups) {
  std::map<std::string, size_t> by_structure;
  const size_t first = groups.size();
  for (const auto& item : list.children) {
    const auto [it, fresh] = by_structure.try_emplace(item->structure, groups.size());
    if (fresh) groups.push_back({});
    groups[it->second].modules.push_back(item.get());
  }
  for (size_t g = first; g < groups.size(); g++) {
    std::vector<int64_t> numbers;
    for (const Module* item : groups[g].modules) numbers.push_back(std::stoll(item->name));
    std::sort(numbers.begin(), numbers.end());
    groups[g].label = prefix + (numbers.size() == 1 ? std::to_string(numbers[0]) : "{" + number_ranges(numbers) + "}");
  }
}

}  // namespace

std::vector<Group> grouped_children(const Module& module) {
  std::vector<Group> groups;
  // A model that is a list itself, or a list in a list.
  if (is_list(module)) {
    add_items(module, "", groups);
    return groups;
  }
  for (const auto& below : module.children) {
    if (is_list(*below))
      add_items(*below, below->name + ".", groups);
    else
      groups.push_back({{below.get()}, below->name});
  }
  return groups;
}

int64_t param_elements(const Model& model, const std::set<int32_t>& params) {
  int64_t count = 0;
  for (int32_t id : params) count += ir::num_elements(model.params[static_cast<size_t>(id)].type.shape).constant;
  return count;
}

int64_t param_bytes(const Model& model, const std::set<int32_t>& params) {
  int64_t bytes = 0;
  for (int32_t id : params) bytes += bytes_of(model.params[static_cast<size_t>(id)].type, 1);
  return bytes;
}

}  // namespace piper::inspect
