#include "frontend/onnx/classify.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "support/strings.h"

namespace piper::frontend {

using ::onnx::NodeProto;
using ::onnx::TensorProto;

namespace {

constexpr std::array kBufferNames = {
    "inv_freq",     "original_inv_freq", "running_mean", "running_var", "num_batches_tracked",
    "position_ids", "masked_bias",       "cos_cached",   "sin_cached",  "relative_position_index"};

// Ops whose result says nothing that could be differentiated.
constexpr std::array kNoGradient = {
    "Shape", "Size",        "ArgMax",          "ArgMin",         "NonZero", "OneHot", "Equal",
    "Less",  "LessOrEqual", "Greater",         "GreaterOrEqual", "And",     "Or",     "Not",
    "IsNaN", "Range",       "ConstantOfShape", "Floor",          "Ceil",    "Round",  "Sign"};
// Ops that differentiate their first input only; the others are shapes, indices and the like.
constexpr std::array kFirstInputOnly = {
    "Gather",     "GatherElements", "GatherND",  "Reshape", "Expand",
    "Slice",      "Squeeze",        "Unsqueeze", "Tile",    "ReduceSum",
    "ReduceMean", "ReduceMax",      "ReduceMin", "Split",   "SplitToSequence",
    "SequenceAt", "Trilu",          "Pad",       "Clip",    "CastLike",
    "TopK",       "CumSum",         "Dropout",   "Cast",    "Resize",
    "Upsample"};

template <class List>
bool contains(const List& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_float(int onnx_type) {
  return onnx_type == TensorProto::FLOAT || onnx_type == TensorProto::DOUBLE ||
         onnx_type == TensorProto::BFLOAT16 || onnx_type == TensorProto::FLOAT16;
}

bool casts_to_integer(const NodeProto& node) {
  if (node.op_type() != "Cast") return false;
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == "to") return !is_float(static_cast<int>(attribute.i()));
  }
  return false;
}

// Names through which a gradient of some output flows.
std::set<std::string> gradient_reach(const SourceGraph& graph) {
  std::set<std::string> reach(graph.outputs.begin(), graph.outputs.end());
  for (auto it = graph.nodes.rbegin(); it != graph.nodes.rend(); ++it) {
    const NodeProto& node = it->proto;
    const bool wanted = std::any_of(node.output().begin(), node.output().end(),
                                    [&](const std::string& name) { return reach.count(name) > 0; });
    if (!wanted || contains(kNoGradient, node.op_type()) || casts_to_integer(node)) continue;
    for (int i = 0; i < node.input_size(); i++) {
      if (i > 2 && node.op_type() == "BatchNormalization") break;  // statistics
      if (i > 0 && contains(kFirstInputOnly, node.op_type())) break;
      if (i == 0 && node.op_type() == "Where") continue;
      reach.insert(node.input(i));
    }
  }
  return reach;
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// Names that exporters make up for values that had none.
bool is_anonymous(const std::string& name) {
  if (is_number(name) || name.find("::") != std::string::npos ||
      name.find('/') != std::string::npos)
    return true;
  if (name.find("lifted_tensor") != std::string::npos || name.find("_output_") != std::string::npos)
    return true;
  for (const char* prefix : {"val_", "Constant_", "const_", "_const", "fx_const"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Nodes that read a value, Identity excepted.
using Consumers = std::map<std::string, std::vector<const SourceNode*>>;

Consumers find_consumers(const SourceGraph& graph) {
  Consumers consumers;
  for (const SourceNode& node : graph.nodes) {
    if (node.proto.op_type() == "Identity") continue;
    for (const std::string& name : node.proto.input()) consumers[name].push_back(&node);
  }
  return consumers;
}

std::string metadata_of(const SourceGraph& graph, const std::string& name, const char* key) {
  auto info = graph.infos.find(name);
  return info == graph.infos.end() ? std::string()
                                   : metadata(*info->second, kValueInfoMetadata, key);
}

std::string metadata_kind(const SourceGraph& graph, const std::string& name) {
  return metadata_of(graph, name, "pkg.torch.export.graph_signature.InputSpec.kind");
}

// What the exporter folded into a constant: "['a.weight', 'b']".
std::vector<std::string> folded_from(const SourceGraph& graph, const std::string& name) {
  return python_strings(metadata_of(graph, name, "pkg.onnxscript.optimizer.folded_from"));
}

// Whether products read the value as their matrix of weights, and nothing else reads it.
bool only_multiplies(const std::string& name, const std::vector<const SourceNode*>& consumers) {
  return !consumers.empty() &&
         std::all_of(consumers.begin(), consumers.end(), [&](const SourceNode* node) {
           return node->proto.op_type() == "MatMul" && node->proto.input_size() == 2 &&
                  node->proto.input(1) == name;
         });
}

// Whether batch normalisations read the value as running mean or variance.
bool are_statistics(const std::string& name, const std::vector<const SourceNode*>& consumers) {
  return std::any_of(consumers.begin(), consumers.end(), [&](const SourceNode* node) {
    const NodeProto& proto = node->proto;
    return proto.op_type() == "BatchNormalization" && proto.input_size() == 5 &&
           (proto.input(3) == name || proto.input(4) == name);
  });
}

// A weight that constant folding transposed and renamed. Its name is in the exporter's note, or
// follows from the module whose product reads it; without either it keeps the name it has in the
// file.
Weight folded_weight(const SourceGraph& graph, const std::string& value, const TensorProto& tensor,
                     const std::vector<const SourceNode*>& consumers) {
  const std::vector<std::string> from = folded_from(graph, tensor.name());
  std::string name = from.size() == 1 ? from[0] : "";
  if (name.empty() && consumers.size() == 1 && consumers[0]->path && !consumers[0]->path->empty()) {
    name = *consumers[0]->path + ".weight";
  }
  if (!is_dotted_name(name)) return {WeightKind::kParameter, value, false, ""};
  auto original = graph.initializers.find(name);
  if (original == graph.initializers.end()) return {WeightKind::kParameter, name, true, ""};
  const TensorProto& other = *original->second;
  const bool transpose =
      other.dims_size() == 2 && other.dims(0) == tensor.dims(1) && other.dims(1) == tensor.dims(0);
  if (from.size() == 1 && transpose) return {WeightKind::kParameter, name, false, name};
  return {WeightKind::kParameter, value, false, ""};
}

Weight classify(const SourceGraph& graph, const TensorProto& tensor,
                const std::set<std::string>& reach, const std::vector<const SourceNode*>& consumers,
                bool has_metadata) {
  const std::string& name = tensor.name();
  Weight weight{WeightKind::kConstant, name, false, ""};
  const std::string kind = metadata_kind(graph, name);
  const bool floats = is_float(tensor.data_type());
  if (kind.find("PARAMETER") != std::string::npos) weight.kind = WeightKind::kParameter;
  if (kind.find("BUFFER") != std::string::npos) weight.kind = WeightKind::kBuffer;
  if (!kind.empty()) return weight;
  if (floats && are_statistics(name, consumers)) {
    weight.kind = WeightKind::kBuffer;
    return weight;
  }
  const std::string last = name.substr(name.rfind('.') + 1);
  if (!floats || contains(kBufferNames, last) || last.ends_with("mask")) {
    if (is_dotted_name(name)) weight.kind = WeightKind::kBuffer;
    return weight;
  }
  if (tensor.dims_size() == 0 || !reach.count(name)) return weight;
  // An exporter that says what each parameter is says nothing about the values it computed.
  if (!has_metadata && !is_anonymous(name)) {
    weight.kind = WeightKind::kParameter;
  } else if (tensor.dims_size() == 2 && only_multiplies(name, consumers)) {
    weight = folded_weight(graph, name, tensor, consumers);
  }
  return weight;
}

// Targets of the lines "p_name: PARAMETER target='a.b.weight'" of the exporter's signature, by
// p_name.
std::map<std::string, std::string> signature_parameters(const ::onnx::ModelProto& model) {
  const std::string text =
      metadata(model.graph(), kGraphMetadata, "pkg.torch.export.ExportedProgram.graph_signature");
  std::map<std::string, std::string> parameters;
  for (const std::string& line : support::split(text, '\n')) {
    const size_t kind = line.find(": PARAMETER target='");
    if (kind == std::string::npos) continue;
    const size_t begin = kind + std::string_view(": PARAMETER target='").size();
    parameters[line.substr(0, kind)] = line.substr(begin, line.find('\'', begin) - begin);
  }
  return parameters;
}

int64_t elements(const TensorProto& tensor) {
  int64_t count = 1;
  for (int64_t dim : tensor.dims()) count *= dim;
  return count;
}

}  // namespace

bool is_dotted_name(const std::string& name) {
  const std::vector<std::string> parts = support::split(name, '.');
  if (parts.size() < 2 || is_number(parts.back()) || is_number(parts.front())) return false;
  for (const std::string& part : parts) {
    if (part.empty()) return false;
    for (unsigned char c : part) {
      if (!std::isalnum(c) && c != '_') return false;
    }
  }
  return true;
}

Weights classify_weights(const SourceGraph& graph) {
  const std::set<std::string> reach = gradient_reach(graph);
  Consumers consumers = find_consumers(graph);
  const bool has_metadata =
      std::any_of(graph.initializers.begin(), graph.initializers.end(),
                  [&](const auto& entry) { return !metadata_kind(graph, entry.first).empty(); });
  Weights weights;
  std::set<std::string> names;
  for (const auto& [name, tensor] : graph.initializers) {
    Weight weight = classify(graph, *tensor, reach, consumers[name], has_metadata);
    // Two weights of one module cannot both be its `weight`.
    const bool renamed = weight.name != name && weight.transpose_of.empty();
    if (renamed && !names.insert(weight.name).second)
      weight = {WeightKind::kParameter, name, false, ""};
    weights.initializers[name] = weight;
  }
  for (const SourceNode& node : graph.nodes) {
    if (node.proto.op_type() != "Identity" || node.proto.input_size() != 1) continue;
    const std::string& from = node.proto.input(0);
    const std::string& to = node.proto.output(0);
    auto original = weights.initializers.find(from);
    if (original == weights.initializers.end()) continue;
    const TensorProto& tensor = *graph.initializers.at(from);
    if (original->second.kind == WeightKind::kParameter && is_dotted_name(to) &&
        to != original->second.name) {
      weights.twins[to] = {{WeightKind::kParameter, to, original->second.transposed, ""}, from};
    } else if (is_anonymous(from) && is_anonymous(to) && is_float(tensor.data_type()) &&
               tensor.dims_size() == 2 && only_multiplies(to, consumers[to])) {
      const Weight weight = folded_weight(graph, to, tensor, consumers[to]);
      if (names.insert(weight.name).second) weights.twins[to] = {weight, from};
    }
  }
  return weights;
}

namespace {

// The node whose torch.export call names this argument.
const SourceNode* reader_of(const SourceGraph& graph, const std::string& argument) {
  for (const SourceNode& node : graph.nodes) {
    const std::string fx = metadata(node.proto, kNodeMetadata, "pkg.torch.onnx.fx_node");
    if (fx.find("%" + argument + ",") != std::string::npos ||
        fx.find("%" + argument + ")") != std::string::npos) {
      return &node;
    }
  }
  return nullptr;
}

bool was_optimized(const SourceGraph& graph) {
  // The exporter's optimizer turns every Constant node into an initializer; without a sign of it, a
  // missing name is a weight that the model itself shares.
  return std::none_of(graph.nodes.begin(), graph.nodes.end(),
                      [](const SourceNode& node) { return node.proto.op_type() == "Constant"; });
}

void report_lost(const std::vector<std::string>& lost, const std::string& how,
                 support::Diagnostics& diagnostics) {
  if (lost.empty()) return;
  const std::string count = std::to_string(lost.size());
  diagnostics
      .report(support::Code::E0407, "the exporter " + how + ": " + count +
                                        (lost.size() == 1 ? " parameter" : " parameters") +
                                        ", the first is `" + lost[0] + "`")
      .note("they could not be trained from this file as they are in the model")
      .help("export with torch.onnx.export(model, args, dynamo=True, optimize=False)");
}

// A float constant without a name that is added to values a gradient flows through may be a folded
// parameter, as learned positions of a fixed length are.
void warn_about_folded(const SourceGraph& graph, const Weights& weights,
                       support::Diagnostics& diagnostics) {
  const std::set<std::string> reach = gradient_reach(graph);
  for (const SourceNode& node : graph.nodes) {
    if (node.proto.op_type() != "Add") continue;
    for (const std::string& name : node.proto.input()) {
      auto it = graph.initializers.find(name);
      if (it == graph.initializers.end() || !is_anonymous(name) ||
          !is_float(it->second->data_type()))
        continue;
      const bool constant = weights.initializers.at(name).kind == WeightKind::kConstant;
      const bool buffers_only =
          !folded_from(graph, name).empty();  // parameters among them are an error
      if (!constant || buffers_only || elements(*it->second) < 2 || !reach.count(name)) continue;
      diagnostics
          .report(support::Code::W0402, "`" + name + "`, which " + describe(node.proto, node.path) +
                                            " adds, has no parameter's name and is not trained")
          .help("if it comes from a parameter, export with do_constant_folding=False");
    }
  }
}

}  // namespace

void check_lost_parameters(const ::onnx::ModelProto& model, const SourceGraph& graph,
                           const Weights& weights, support::Diagnostics& diagnostics) {
  constexpr int64_t kMergedAtMost = 1024;  // larger tensors are not merged by value
  warn_about_folded(graph, weights, diagnostics);
  std::set<std::string> kept, folded;
  for (const auto& [name, weight] : weights.initializers) {
    if (weight.kind == WeightKind::kParameter) kept.insert(weight.name);
    for (const std::string& from : folded_from(graph, name)) folded.insert(from);
  }
  std::vector<std::string> lost_by_folding, lost_by_merging;
  for (const auto& [argument, target] : signature_parameters(model)) {
    if (kept.count(target)) continue;
    if (folded.count(target)) {
      lost_by_folding.push_back(target);
      continue;
    }
    const SourceNode* reader = was_optimized(graph) ? reader_of(graph, argument) : nullptr;
    if (reader == nullptr) continue;
    const auto& inputs = reader->proto.input();
    const bool merged = std::any_of(inputs.begin(), inputs.end(), [&](const std::string& in) {
      auto it = graph.initializers.find(in);
      return it != graph.initializers.end() &&
             metadata_kind(graph, in).find("PARAMETER") != std::string::npos &&
             elements(*it->second) <= kMergedAtMost;
    });
    if (merged) lost_by_merging.push_back(target);
  }
  report_lost(lost_by_folding, "computed constants from parameters", diagnostics);
  report_lost(lost_by_merging, "merged parameters that had equal values", diagnostics);
}

}  // namespace piper::frontend
