#include "frontend/onnx/inspect.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "fmt/format.h"
#include "ops/op.h"
#include "support/strings.h"

namespace piper::frontend {

namespace {

using ir::Model;
using ir::Op;
using ir::ValueId;

// A module: its path's last component, what it holds by itself and below.
struct Module {
  std::string name;
  int ops = 0;
  double flops = 0;                               // of one sample
  int64_t activation_bytes = 0;                   // what its ops write for one sample
  std::set<int32_t> params;                       // ids, each once however often it is read
  std::string output;                             // type of the last value it computes
  std::vector<std::unique_ptr<Module>> children;  // in order of first use
};

Module* child(Module* parent, const std::string& name) {
  for (auto& module : parent->children) {
    if (module->name == name) return module.get();
  }
  parent->children.push_back(std::make_unique<Module>());
  parent->children.back()->name = name;
  return parent->children.back().get();
}

int64_t bytes_of(const ir::TensorType& type, int64_t batch) {
  int64_t count = 1;
  for (int64_t size : ir::at(type.shape, batch)) count *= size;
  return count * ir::dtype_size(type.dtype);
}

void add(Module* module, const Model& model, const Op& op, double flops) {
  module->ops++;
  module->flops += flops;
  for (ValueId id : op.outputs) module->activation_bytes += bytes_of(model.value(id).type, 1);
  for (ValueId id : op.inputs) {
    if (id.valid() && model.value(id).param.valid())
      module->params.insert(model.value(id).param.value);
  }
  module->output = to_string(model.value(op.outputs[0]).type);
}

Module module_tree(const Model& model) {
  Module root;
  root.name = "(model)";
  for (const Op& op : model.ops) {
    // The cost of one sample: what grows when there is one more.
    const double flops = ops::flops_of(model, op, 2) - ops::flops_of(model, op, 1);
    Module* module = &root;
    add(module, model, op, flops);
    if (op.path.empty()) continue;
    for (const std::string& part : support::split(op.path, '.')) {
      module = child(module, part);
      add(module, model, op, flops);
    }
  }
  return root;
}

int64_t elements(const Model& model, const std::set<int32_t>& params) {
  int64_t count = 0;
  for (int32_t id : params)
    count += ir::num_elements(model.params[static_cast<size_t>(id)].type.shape).constant;
  return count;
}

std::string human_flops(double flops) {
  const char* units[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (flops >= 1000 && unit + 1 < std::size(units)) {
    flops /= 1000;
    unit++;
  }
  return unit == 0 ? fmt::format("{:.0f}", flops) : fmt::format("{:.1f}{}", flops, units[unit]);
}

using Row = std::vector<std::string>;

// Columns as wide as their widest cell; the first is left aligned, numbers (`right`) are right
// aligned.
std::string table(const std::vector<Row>& rows, const std::vector<bool>& right) {
  std::vector<size_t> width(right.size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); i++) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); i++) {
      if (i > 0) line += "  ";
      line += right[i] ? fmt::format("{:>{}}", row[i], width[i])
                       : fmt::format("{:<{}}", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

void module_rows(const Model& model, const Module& module, int depth, std::vector<Row>* rows) {
  rows->push_back({std::string(static_cast<size_t>(2 * depth), ' ') + module.name,
                   std::to_string(module.ops), std::to_string(elements(model, module.params)),
                   human_flops(module.flops), support::human_bytes(module.activation_bytes),
                   module.output});
  for (const auto& below : module.children) module_rows(model, *below, depth + 1, rows);
}

std::string kind_of(const ir::Parameter& param) { return param.is_buffer ? "buffer" : "parameter"; }

// Number of ops that read each parameter.
std::vector<int> parameter_uses(const Model& model) {
  std::vector<int> uses(model.params.size(), 0);
  for (const Op& op : model.ops) {
    for (ValueId id : op.inputs) {
      if (id.valid() && model.value(id).param.valid()) uses[model.value(id).param.index()]++;
    }
  }
  return uses;
}

struct Totals {
  int64_t trainable = 0, frozen = 0, bytes = 0;
};

Totals totals_of(const Model& model) {
  Totals totals;
  for (const ir::Parameter& param : model.params) {
    (param.trainable ? totals.trainable : totals.frozen) +=
        ir::num_elements(param.type.shape).constant;
    totals.bytes += bytes_of(param.type, 1);
  }
  return totals;
}

std::map<std::string, int> op_counts(const Model& model) {
  std::map<std::string, int> counts;
  for (const Op& op : model.ops) counts[op.kind]++;
  return counts;
}

std::string parameter_table(const Model& model) {
  std::vector<Row> rows = {{"parameter", "type", "kind", "trainable", "uses", "stored as"}};
  const std::vector<int> uses = parameter_uses(model);
  for (size_t i = 0; i < model.params.size(); i++) {
    const ir::Parameter& param = model.params[i];
    std::string stored;
    if (param.initializer.empty()) stored = "(no value in the file)";
    if (!param.initializer.empty() && param.initializer != param.name) stored = param.initializer;
    if (param.transposed) stored += stored.empty() ? "transposed" : ", transposed";
    rows.push_back({param.name, to_string(param.type), kind_of(param),
                    param.trainable ? "yes" : "no",
                    std::to_string(uses[i]) + (uses[i] > 1 ? " (tied)" : ""), stored});
  }
  return table(rows, {false, false, false, false, false, false});
}

nlohmann::ordered_json module_json(const Model& model, const Module& module) {
  nlohmann::ordered_json json = {{"name", module.name},
                                 {"ops", module.ops},
                                 {"parameters", elements(model, module.params)},
                                 {"flops_per_sample", module.flops},
                                 {"activation_bytes_per_sample", module.activation_bytes},
                                 {"output", module.output}};
  for (const auto& below : module.children) json["modules"].push_back(module_json(model, *below));
  return json;
}

nlohmann::ordered_json values_json(const Model& model, const std::vector<ValueId>& ids) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (ValueId id : ids)
    json.push_back({{"name", model.value(id).name}, {"type", to_string(model.value(id).type)}});
  return json;
}

}  // namespace

std::string inspect_text(const Model& model) {
  const Module root = module_tree(model);
  const Totals totals = totals_of(model);
  std::string text =
      "made by " + (model.producer.empty() ? "an unknown exporter" : model.producer) + "\n";
  for (ValueId id : model.inputs)
    text += "input  " + model.value(id).name + ": " + to_string(model.value(id).type) + "\n";
  for (ValueId id : model.outputs)
    text += "output " + model.value(id).name + ": " + to_string(model.value(id).type) + "\n";

  std::vector<Row> rows = {
      {"module", "ops", "parameters", "FLOPs/sample", "values/sample", "output"}};
  module_rows(model, root, 0, &rows);
  text += "\n" + table(rows, {false, true, true, true, true, false});
  text += "\n" + parameter_table(model);

  rows = {{"operation", "count"}};
  for (const auto& [kind, count] : op_counts(model)) rows.push_back({kind, std::to_string(count)});
  text += "\n" + table(rows, {false, true});
  text += fmt::format(
      "\n{} ops, {} trainable and {} other parameter elements ({}), {} FLOPs a sample forward\n",
      model.ops.size(), totals.trainable, totals.frozen, support::human_bytes(totals.bytes),
      human_flops(root.flops));
  return text;
}

std::string inspect_json(const Model& model) {
  const Module root = module_tree(model);
  const Totals totals = totals_of(model);
  const std::vector<int> uses = parameter_uses(model);
  nlohmann::ordered_json json = {{"producer", model.producer},
                                 {"hash", fmt::format("{:016x}", model.hash)}};
  json["inputs"] = values_json(model, model.inputs);
  json["outputs"] = values_json(model, model.outputs);
  json["modules"] = module_json(model, root);
  json["parameters"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < model.params.size(); i++) {
    const ir::Parameter& param = model.params[i];
    json["parameters"].push_back({{"name", param.name},
                                  {"type", to_string(param.type)},
                                  {"kind", kind_of(param)},
                                  {"trainable", param.trainable},
                                  {"uses", uses[i]},
                                  {"initializer", param.initializer},
                                  {"transposed", param.transposed}});
  }
  json["operations"] = op_counts(model);
  json["totals"] = {{"ops", model.ops.size()},
                    {"trainable_elements", totals.trainable},
                    {"other_elements", totals.frozen},
                    {"parameter_bytes", totals.bytes},
                    {"flops_per_sample", root.flops}};
  return json.dump(2) + "\n";
}

}  // namespace piper::frontend
