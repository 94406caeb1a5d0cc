#include "frontend/onnx/classify.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "frontend/onnx/tensor_data.h"
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
    "Upsample",   "ReduceProd",     "SoftmaxCrossEntropyLoss",     "NegativeLogLikelihoodLoss"};

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

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::string metadata_of(const SourceGraph& graph, const std::string& name, const char* key) {
  auto info = graph.infos.find(name);
  return info == graph.infos.end() ? std::string()
                                   : metadata(*info->second, kValueInfoMetadata, key);
}

}  // namespace

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

std::string metadata_kind(const SourceGraph& graph, const std::string& name) {
  return metadata_of(graph, name, "pkg.torch.export.graph_signature.InputSpec.kind");
}

std::vector<std::string> folded_from(const SourceGraph& graph, const std::string& name) {
  return python_strings(metadata_of(graph, name, "pkg.onnxscript.optimizer.folded_from"));
}

namespace {

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

// Whether products read the value as their matrix of weights, and nothing else reads it.
bool only_multiplies(const std::string& name, const std::vector<const SourceNode*>& consumers) {
  return !consumers.empty() &&
         std::all_of(consumers.begin(), consumers.end(), [&](const SourceNode* node) {
           return node->proto.op_type() == "MatMul" && node->proto.input_size() == 2 &&
                  node->proto.input(1) == name;
         });
}

// Inputs that are weights of a layer by where they stand, whatever they are called.
struct WeightRole {
  const char* op_type;
  int input;
  const char* name;  // in a module
};
constexpr WeightRole kWeightRoles[] = {
    {"BatchNormalization", 1, "weight"}, {"BatchNormalization", 2, "bias"},
    {"Conv", 1, "weight"},               {"Conv", 2, "bias"},
    {"ConvTranspose", 1, "weight"},      {"ConvTranspose", 2, "bias"},
    {"Gemm", 1, "weight"},               {"Gemm", 2, "bias"},
    {"GRU", 1, "weight_ih"},             {"GRU", 2, "weight_hh"},
    {"GRU", 3, "bias"},                  {"LSTM", 1, "weight_ih"},
    {"LSTM", 2, "weight_hh"},            {"LSTM", 3, "bias"},
    {"LayerNormalization", 1, "weight"}, {"LayerNormalization", 2, "bias"},
    {"PRelu", 1, "weight"}};

// The role of a value that every reader reads as one weight of a layer; nullptr when it is none.
const WeightRole* weight_role(const std::string& name,
                               const std::vector<const SourceNode*>& consumers) {
  const WeightRole* role = nullptr;
  for (const SourceNode* node : consumers) {
    const auto found = std::find_if(
        std::begin(kWeightRoles), std::end(kWeightRoles), [&](const WeightRole& row) {
          return node->proto.op_type() == row.op_type && row.input < node->proto.input_size() &&
                 node->proto.input(row.input) == name;
        });
    if (found == std::end(kWeightRoles)) return nullptr;
    role = found;
  }
  return role;
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
  if (!is_dotted_name(name)) return {WeightKind::kParameter, value};
  auto original = graph.initializers.find(name);
  if (original == graph.initializers.end()) return {WeightKind::kParameter, name, true};
  const TensorProto& other = *original->second;
  const bool transpose =
      other.dims_size() == 2 && other.dims(0) == tensor.dims(1) && other.dims(1) == tensor.dims(0);
  if (from.size() == 1 && transpose) return {WeightKind::kParameter, name, false, name};
  return {WeightKind::kParameter, value};
}

Weight classify(const SourceGraph& graph, const TensorProto& tensor,
                const std::set<std::string>& reach, const std::vector<const SourceNode*>& consumers,
                bool has_metadata) {
  const std::string& name = tensor.name();
  Weight weight{WeightKind::kConstant, name};
  weight.reason = "the exporter says so";
  const std::string kind = metadata_kind(graph, name);
  const bool floats = is_float(tensor.data_type());
  if (kind.find("PARAMETER") != std::string::npos) weight.kind = WeightKind::kParameter;
  if (kind.find("BUFFER") != std::string::npos) weight.kind = WeightKind::kBuffer;
  if (!kind.empty()) return weight;
  if (floats && are_statistics(name, consumers)) {
    weight.kind = WeightKind::kBuffer;
    weight.reason = "running statistics of a batch normalisation";
    return weight;
  }
  const std::string last = name.substr(name.rfind('.') + 1);
  if (!floats || contains(kBufferNames, last) || last.ends_with("mask") ||
      last.ends_with("_buffer")) {
    if (is_dotted_name(name)) weight.kind = WeightKind::kBuffer;
    weight.reason = floats ? "its name is one of buffers" : "it holds no floats";
    return weight;
  }
  if (tensor.dims_size() == 0 || !reach.count(name)) {
    weight.reason = tensor.dims_size() == 0 ? "a single number" : "no gradient reaches it";
    return weight;
  }
  // An exporter that says what each parameter is says nothing about the values it computed.
  if (!has_metadata && !is_anonymous(name)) {
    weight.kind = WeightKind::kParameter;
    weight.reason = "a gradient reaches it, and it has a name";
  } else if (tensor.dims_size() == 2 && only_multiplies(name, consumers)) {
    weight = folded_weight(graph, name, tensor, consumers);
    weight.reason = "a product reads it as its matrix, transposed by constant folding";
  } else if (const WeightRole* role = weight_role(name, consumers)) {
    weight.kind = WeightKind::kParameter;
    weight.reason = "an operation reads it as its weight";
    // As in a convolution that took a batch normalisation in: it has the name of its module again.
    if (has_metadata) return weight;  // there are names already, and lists of which of them are lost
    const std::string own = consumers.size() == 1 && consumers[0]->path ? *consumers[0]->path : "";
    const std::string known = own.empty() ? "" : own + "." + role->name;
    if (is_dotted_name(known) && !graph.initializers.count(known)) weight.name = known;
  } else {
    weight.reason = has_metadata ? "the exporter lists it as no parameter" : "it has no name of its own";
  }
  return weight;
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

namespace {

bool is_transpose(const Initializer& a, const Initializer& b) {
  const size_t rows = static_cast<size_t>(a.dims[0]), columns = static_cast<size_t>(a.dims[1]);
  const size_t size = static_cast<size_t>(ir::dtype_size(a.dtype));
  bool constant = true;
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < columns; c++) {
      const std::byte* element = a.data + (r * columns + c) * size;
      if (std::memcmp(element, b.data + (c * rows + r) * size, size) != 0) return false;
      constant = constant && std::memcmp(element, a.data, size) == 0;
    }
  }
  return !constant;  // all equal: what an initialisation makes, and no sign of anything
}

// TorchScript's constant folding gives a matrix that an embedding and a product share a transposed
// copy for the product. A copy without a name that is, bit for bit, the transpose of a parameter
// that a Gather reads is that parameter: two matrices drawn independently are never equal.
// Copies of one orientation stay apart: layers made by copying one start with equal weights.
void tie_transposed_copies(const SourceGraph& graph, Consumers& consumers, TensorDecoder& decoder,
                           Weights* weights) {
  for (auto& [name, weight] : weights->initializers) {
    const TensorProto& copy = *graph.initializers.at(name);
    if (weight.kind != WeightKind::kParameter || !weight.transpose_of.empty()) continue;
    if (!is_anonymous(name) || !only_multiplies(name, consumers[name])) continue;
    if (!folded_from(graph, name).empty()) continue;  // the exporter says what it is
    for (const auto& [other, original] : weights->initializers) {
      const TensorProto& tensor = *graph.initializers.at(other);
      if (original.kind != WeightKind::kParameter || is_anonymous(other)) continue;
      if (tensor.data_type() != copy.data_type() || tensor.dims_size() != 2 ||
          tensor.dims(0) != copy.dims(1) || tensor.dims(1) != copy.dims(0))
        continue;
      const bool embeds = std::any_of(
          consumers[other].begin(), consumers[other].end(), [&](const SourceNode* node) {
            return node->proto.op_type() == "Gather" && node->proto.input(0) == other;
          });
      if (!embeds) continue;
      auto a = decoder.decode(tensor), b = decoder.decode(copy);
      if (!a || !b || !is_transpose(*a, *b)) continue;
      weight = {WeightKind::kParameter, other, false, other};
      break;
    }
  }
}

// The strategy's rule for a weight goes before what was found out about it.
void apply_treat(TreatRules& treats, const std::string& file_name, int onnx_type, Weight* weight) {
  const ir::Treat* treat = treats.find(file_name, weight->name);
  if (treat == nullptr) return;
  if (treat->kind == WeightKind::kParameter && !is_float(onnx_type)) {
    if (treat->glob.find('*') != std::string::npos) return;  // it means the floats among what it matches
    treats.refuse(*treat, "`" + weight->name + "` holds " + onnx_type_name(onnx_type) + " values");
    return;
  }
  weight->kind = treat->kind;
  weight->treated = true;
  weight->reason = "`treat` in the strategy";
  if (treat->kind == WeightKind::kParameter) return;
  // A copy that folding made of a shared weight keeps the values that the file has.
  weight->transpose_of.clear();
}

// The graph with the nodes of all branches in place of each If: weights are also read there.
SourceGraph with_branches(const SourceGraph& graph) {
  SourceGraph flat = graph;
  flat.nodes.clear();
  const auto add = [&](const SourceNode& node, const auto& self) -> void {
    bool branches = false;
    for (const auto& attribute : node.proto.attribute()) {
      if (!attribute.has_g()) continue;
      branches = true;
      for (const NodeProto& inner : attribute.g().node()) {
        SourceNode source = node;
        source.proto = inner;
        if (auto path = exporter_path(inner)) source.path = path;
        self(source, self);
      }
      for (int i = 0; i < std::min(attribute.g().output_size(), node.proto.output_size()); i++) {
        SourceNode same = node;
        same.proto = NodeProto();
        same.proto.set_op_type("Identity");
        same.proto.add_input(attribute.g().output(i).name());
        same.proto.add_output(node.proto.output(i));
        flat.nodes.push_back(std::move(same));
      }
    }
    if (!branches) flat.nodes.push_back(node);
  };
  for (const SourceNode& node : graph.nodes) add(node, add);
  return flat;
}

Weights classify_flat(const SourceGraph& graph, TensorDecoder& decoder, TreatRules& treats) {
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
    if (renamed && !names.insert(weight.name).second) {
      weight.name = name;
      weight.transposed = false;
    }
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
      weights.twins[to] = {{WeightKind::kParameter, to, original->second.transposed}, from};
    } else if (is_anonymous(from) && is_anonymous(to) && is_float(tensor.data_type()) &&
               tensor.dims_size() == 2 && only_multiplies(to, consumers[to])) {
      const Weight weight = folded_weight(graph, to, tensor, consumers[to]);
      if (names.insert(weight.name).second) weights.twins[to] = {weight, from};
    }
  }
  tie_transposed_copies(graph, consumers, decoder, &weights);
  for (auto& [name, weight] : weights.initializers)
    apply_treat(treats, name, graph.initializers.at(name)->data_type(), &weight);
  for (auto& [name, twin] : weights.twins)
    apply_treat(treats, name, graph.initializers.at(twin.initializer)->data_type(), &twin.weight);
  return weights;
}

}  // namespace

Weights classify_weights(const SourceGraph& graph, TensorDecoder& decoder, TreatRules& treats) {
  const bool branches =
      std::any_of(graph.nodes.begin(), graph.nodes.end(),
                  [](const SourceNode& node) { return node.proto.op_type() == "If"; });
  return branches ? classify_flat(with_branches(graph), decoder, treats)
                  : classify_flat(graph, decoder, treats);
}

}  // namespace piper::frontend
