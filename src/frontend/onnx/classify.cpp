#include "frontend/onnx/classify.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "support/strings.h"

namespace piper::frontend {

using ::onnx::NodeProto;
using ::onnx::TensorProto;

namespace {

constexpr std::array kBufferNames = {"inv_freq",     "original_inv_freq", "running_mean", "running_var",
                                     "num_batches_tracked", "position_ids", "masked_bias",  "causal_mask",
                                     "attn_mask",    "attention_mask",    "cos_cached",   "sin_cached",
                                     "relative_position_index"};

// Ops whose result says nothing that could be differentiated.
constexpr std::array kNoGradient = {"Shape", "Size", "ArgMax", "ArgMin", "NonZero", "OneHot", "Equal", "Less", "LessOrEqual",
                                    "Greater", "GreaterOrEqual", "And", "Or", "Not", "IsNaN", "Range", "ConstantOfShape",
                                    "Floor", "Ceil", "Round", "Sign"};
// Ops that differentiate their first input only; the others are shapes, indices and the like.
constexpr std::array kFirstInputOnly = {"Gather", "GatherElements", "GatherND", "Reshape", "Expand", "Slice", "Squeeze",
                                        "Unsqueeze", "Tile", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "Split",
                                        "SplitToSequence", "SequenceAt", "Trilu", "Pad", "Clip", "CastLike", "TopK",
                                        "CumSum", "Dropout", "Cast"};

template <class List>
bool contains(const List& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_float(int onnx_type) {
  return onnx_type == TensorProto::FLOAT || onnx_type == TensorProto::DOUBLE || onnx_type == TensorProto::BFLOAT16 ||
         onnx_type == TensorProto::FLOAT16;
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
      if (i > 0 && contains(kFirstInputOnly, node.op_type())) break;
      if (i == 0 && node.op_type() == "Where") continue;
      reach.insert(node.input(i));
    }
  }
  return reach;
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// Names that exporters make up for values that had none.
bool is_anonymous(const std::string& name) {
  if (is_number(name) || name.find("::") != std::string::npos || name.find('/') != std::string::npos) return true;
  if (name.find("lifted_tensor") != std::string::npos || name.find("_output_") != std::string::npos) return true;
  for (const char* prefix : {"val_", "Constant_", "const_", "_const", "fx_const"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

struct Consumer {
  const SourceNode* node = nullptr;
  int count = 0;  // of all uses
};

// The name of a weight that constant folding transposed and renamed, from the exporter's note or from the module whose
// product reads it.
std::string recovered_name(const SourceGraph& graph, const std::string& initializer, const Consumer& consumer) {
  if (auto info = graph.infos.find(initializer); info != graph.infos.end()) {
    const std::string from = metadata(*info->second, kValueInfoMetadata, "pkg.onnxscript.optimizer.folded_from");
    const size_t begin = from.find('\''), end = from.rfind('\'');
    if (begin != std::string::npos && end > begin) {
      const std::string name = from.substr(begin + 1, end - begin - 1);
      if (name.find('\'') == std::string::npos && is_dotted_name(name)) return name;
    }
  }
  if (consumer.count != 1 || !consumer.node->path || consumer.node->path->empty()) return {};
  const NodeProto& node = consumer.node->proto;
  const bool product = node.op_type() == "MatMul" && node.input_size() == 2 && node.input(1) == initializer;
  return product ? *consumer.node->path + ".weight" : std::string();
}

std::string metadata_kind(const SourceGraph& graph, const std::string& name) {
  auto info = graph.infos.find(name);
  if (info == graph.infos.end()) return {};
  return metadata(*info->second, kValueInfoMetadata, "pkg.torch.export.graph_signature.InputSpec.kind");
}

Weight classify(const SourceGraph& graph, const TensorProto& tensor, const std::set<std::string>& reach,
                const Consumer& consumer) {
  const std::string& name = tensor.name();
  Weight weight{WeightKind::kConstant, name, false};
  const std::string kind = metadata_kind(graph, name);
  const bool floats = is_float(tensor.data_type());
  if (kind.find("PARAMETER") != std::string::npos) weight.kind = WeightKind::kParameter;
  if (kind.find("BUFFER") != std::string::npos) weight.kind = WeightKind::kBuffer;
  if (!kind.empty()) return weight;
  const std::string last = name.substr(name.rfind('.') + 1);
  if (!floats || contains(kBufferNames, last)) {
    if (is_dotted_name(name)) weight.kind = WeightKind::kBuffer;
    return weight;
  }
  if (tensor.dims_size() == 0 || !reach.count(name)) return weight;
  if (!is_anonymous(name)) {
    weight.kind = WeightKind::kParameter;
  } else if (tensor.dims_size() == 2) {
    const std::string recovered = recovered_name(graph, name, consumer);
    if (!recovered.empty() && !graph.initializers.count(recovered)) {
      weight = {WeightKind::kParameter, recovered, true};
    }
  }
  return weight;
}

// Targets of the lines "p_name: PARAMETER target='a.b.weight'" of the exporter's signature, by p_name.
std::map<std::string, std::string> signature_parameters(const ::onnx::ModelProto& model) {
  const std::string text = metadata(model.graph(), kGraphMetadata, "pkg.torch.export.ExportedProgram.graph_signature");
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

std::map<std::string, Weight> classify_weights(const SourceGraph& graph) {
  const std::set<std::string> reach = gradient_reach(graph);
  std::map<std::string, Consumer> consumers;
  for (const SourceNode& node : graph.nodes) {
    for (const std::string& name : node.proto.input()) {
      if (!graph.initializers.count(name)) continue;
      consumers[name].node = &node;
      consumers[name].count++;
    }
  }
  std::map<std::string, Weight> weights;
  std::set<std::string> names;
  for (const auto& [name, tensor] : graph.initializers) {
    Weight weight = classify(graph, *tensor, reach, consumers[name]);
    // Two weights of one module cannot both be its `weight`.
    if (weight.name != name && !names.insert(weight.name).second) weight = {WeightKind::kParameter, name, false};
    weights[name] = weight;
  }
  return weights;
}

void check_lost_parameters(const ::onnx::ModelProto& model, const SourceGraph& graph,
                           support::Diagnostics& diagnostics) {
  // The exporter's optimizer turns every Constant node into an initializer; without a sign of it, a missing name is a
  // weight that the model itself shares.
  for (const SourceNode& node : graph.nodes) {
    if (node.proto.op_type() == "Constant") return;
  }
  constexpr int64_t kMergedAtMost = 1024;  // larger tensors are not merged by value
  std::vector<std::string> lost;
  for (const auto& [argument, target] : signature_parameters(model)) {
    if (graph.initializers.count(target)) continue;
    for (const SourceNode& node : graph.nodes) {
      const std::string fx = metadata(node.proto, kNodeMetadata, "pkg.torch.onnx.fx_node");
      if (fx.find("%" + argument + ",") == std::string::npos && fx.find("%" + argument + ")") == std::string::npos) {
        continue;
      }
      const bool merged = std::any_of(node.proto.input().begin(), node.proto.input().end(), [&](const std::string& in) {
        auto it = graph.initializers.find(in);
        return it != graph.initializers.end() && is_float(it->second->data_type()) &&
               metadata_kind(graph, in).find("PARAMETER") != std::string::npos && elements(*it->second) <= kMergedAtMost;
      });
      if (merged) lost.push_back(target);
      break;
    }
  }
  if (lost.empty()) return;
  diagnostics
      .report(support::Code::E0407, "the exporter merged " + std::to_string(lost.size()) +
                                        " parameters that had equal values, the first is `" + lost[0] + "`")
      .note("trained from this file they would be one parameter")
      .help("export with torch.onnx.export(model, args, dynamo=True, optimize=False)");
}

}  // namespace piper::frontend
