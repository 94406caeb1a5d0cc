#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "inspect/experts.h"
#include "inspect/inspect.h"
#include "inspect/layers.h"
#include "inspect/module_tree.h"

namespace piper::inspect {

using Json = nlohmann::ordered_json;
using ir::ValueId;

namespace {

Json module_json(const Inspection& in, const Module& module) {
  Json json = {{"name", module.name},
               {"path", module.path},
               {"ops", module.ops},
               {"parameters", param_elements(*in.model, module.params)},
               {"parameter_bytes", param_bytes(*in.model, module.params)}};
  if (in.typed) {
    json["flops_per_sample"] = module.flops;
    json["activation_bytes_per_sample"] = module.activation_bytes;
  }
  if (!in.saved.empty()) json["saved_bytes_per_sample"] = module.saved_bytes;
  if (in.typed) json["output"] = module.output;
  for (const auto& below : module.children) json["modules"].push_back(module_json(in, *below));
  return json;
}

Json values_json(const Inspection& in, const std::vector<ValueId>& ids, bool typed) {
  Json json = Json::array();
  for (ValueId id : ids) {
    Json value = {{"name", in.model->value(id).name}};
    if (typed) value["type"] = to_string(in.model->value(id).type);
    json.push_back(std::move(value));
  }
  return json;
}

// Number of operations that read each parameter.
std::vector<int> parameter_uses(const ir::Model& model) {
  std::vector<int> uses(model.params.size(), 0);
  for (const ir::Op& op : model.ops) {
    for (ValueId id : op.inputs) {
      if (id.valid() && model.value(id).param.valid()) uses[model.value(id).param.index()]++;
    }
  }
  return uses;
}

Json parameters_json(const ir::Model& model) {
  const std::vector<int> uses = parameter_uses(model);
  Json json = Json::array();
  for (size_t i = 0; i < model.params.size(); i++) {
    const ir::Parameter& param = model.params[i];
    json.push_back({{"name", param.name},
                    {"type", to_string(param.type)},
                    {"kind", param.is_buffer ? "buffer" : "parameter"},
                    {"trainable", param.trainable},
                    {"uses", uses[i]},
                    {"initializer", param.initializer},
                    {"transposed", param.transposed}});
  }
  return json;
}

Json tensors_json(const frontend::ImportNotes& notes) {
  Json json = Json::array();
  for (const auto& w : notes.weights) {
    const char* kind = w.kind == ir::WeightKind::kParameter ? "parameter"
                       : w.kind == ir::WeightKind::kBuffer  ? "buffer"
                                                            : "constant";
    json.push_back(
        {{"name", w.name}, {"stored_as", w.stored_as}, {"type", w.type}, {"kind", kind}, {"reason", w.reason}});
  }
  return json;
}

Json totals_json(const Inspection& in, const Module& root) {
  int64_t trainable = 0, frozen = 0, bytes = 0;
  for (const ir::Parameter& param : in.model->params) {
    (param.trainable ? trainable : frozen) += ir::num_elements(param.type.shape).constant;
    bytes += bytes_of(param.type, 1);
  }
  Json json = {{"ops", in.model->ops.size()},
               {"trainable_elements", trainable},
               {"other_elements", frozen},
               {"parameter_bytes", bytes}};
  if (in.typed) json["flops_per_sample"] = root.flops;
  if (!in.saved.empty()) json["saved_bytes_per_sample"] = root.saved_bytes;
  return json;
}

Json chunk_json(const ChunkFacts& chunk) {
  return {{"name", chunk.name},
          {"ops", chunk.cost.ops},
          {"parameters", chunk.parameters},
          {"forward_flops_per_sample", chunk.cost.forward},
          {"backward_flops_per_sample", chunk.cost.backward},
          {"saved_bytes_per_sample", chunk.cost.saved}};
}

Json strategy_json(const StrategyFacts& facts) {
  Json json = {{"tags", Json::array()}, {"adopted", Json::array()}, {"chunks", Json::array()}, {"devices", Json::array()}};
  for (const auto& [path, tags] : facts.tags) json["tags"].push_back({{"path", path}, {"tags", tags}});
  for (const Adoption& row : facts.adopted)
    json["adopted"].push_back({{"path", row.path}, {"operations", row.kinds}, {"by", row.regions}, {"because", row.why}});
  for (const ChunkFacts& chunk : facts.chunks) {
    Json entry = chunk_json(chunk);
    entry["placed_on"] = chunk.places;
    json["chunks"].push_back(std::move(entry));
  }
  for (const ChunkFacts& device : facts.devices) json["devices"].push_back(chunk_json(device));
  return json;
}

}  // namespace

std::string inspect_json(const Inspection& in, const StrategyFacts* strategy) {
  const ir::Model& model = *in.model;
  const Module root = module_tree(model, in.saved, in.typed);
  Json json = {{"producer", model.producer},
               {"ir_version", in.notes->ir_version},
               {"opset", in.notes->opset},
               {"hash", fmt::format("{:016x}", model.hash)}};
  json["inputs"] = values_json(in, model.inputs, true);
  json["outputs"] = values_json(in, model.outputs, in.typed);
  json["open_dims"] = Json::array();
  for (const auto& [dim, inputs] : in.notes->assumed)
    json["open_dims"].push_back({{"name", dim}, {"inputs", inputs}, {"shown_for", in.notes->assumed_size}});
  json["unsupported"] = Json::array();
  for (const auto& row : in.notes->unsupported) {
    json["unsupported"].push_back({{"op", row.op},
                                   {"nodes", row.count},
                                   {"first", row.first},
                                   {"path", row.path},
                                   {"other_opset", row.other_opset}});
  }
  json["lists"] = Json::array();
  for (const LayerRule& list : outermost_lists(root))
    json["lists"].push_back({{"glob", list.glob()}, {"numbers", list.numbers}});
  json["ties"] = Json::array();
  for (const Tie& tie : ties_of(model)) json["ties"].push_back({{"parameter", tie.parameter}, {"paths", tie.paths}});
  json["experts"] = Json::array();
  for (const Experts& e : experts_of(model)) {
    json["experts"].push_back({{"path", e.path},
                               {"experts", e.experts},
                               {"choices", e.choices},
                               {"capacity", e.capacity},
                               {"parameters", e.parameters}});
  }
  json["saved_for"] = in.saved_for;
  json["modules"] = module_json(in, root);
  json["parameters"] = parameters_json(model);
  json["tensors"] = tensors_json(*in.notes);
  std::map<std::string, int> counts;
  for (const ir::Op& op : model.ops) counts[op.kind]++;
  json["operations"] = counts;
  json["totals"] = totals_json(in, root);
  if (strategy != nullptr) json["strategy"] = strategy_json(*strategy);
  return json.dump(2) + "\n";
}

}  // namespace piper::inspect
