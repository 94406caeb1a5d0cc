// Signs that a file was exported to be run and not to be trained: parameters that the exporter's
// list of the model's tensors has and the file has lost, and a cache of keys and values.

#include <algorithm>

#include "frontend/onnx/classify.h"
#include "support/strings.h"

namespace piper::frontend {

using ::onnx::TensorProto;
using support::Code;
using support::Diagnostics;

namespace {

constexpr const char* kRecipe =
    "export with torch.onnx.export(model, args, dynamo=True, optimize=False)";
constexpr int64_t kMergedAtMost = 1024;  // elements; larger tensors are not merged by value

using Signature = std::map<std::string, std::string>;  // parameter's name by torch.export's name

// Lines "p_name: PARAMETER target='a.b.weight'", of old exporters
// "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_name'), target='a.b.weight'".
Signature signature_parameters(const ::onnx::ModelProto& model) {
  const std::string text =
      metadata(model.graph(), kGraphMetadata, "pkg.torch.export.ExportedProgram.graph_signature");
  auto quoted = [&](const std::string& part, std::string_view key) {
    const size_t at = part.find(key);
    if (at == std::string::npos) return std::string();
    const size_t begin = at + key.size();
    return part.substr(begin, part.find('\'', begin) - begin);
  };
  Signature parameters;
  for (const std::string& line : support::split(text, '\n')) {
    if (const size_t kind = line.find(": PARAMETER target='"); kind != std::string::npos)
      parameters[line.substr(0, kind)] = quoted(line, "target='");
  }
  for (size_t at = text.find("InputKind.PARAMETER"); at != std::string::npos;
       at = text.find("InputKind.PARAMETER", at + 1)) {
    const std::string spec = text.substr(at, text.find("InputSpec(", at) - at);
    parameters[quoted(spec, "name='")] = quoted(spec, "target='");
  }
  return parameters;
}

int64_t elements(const TensorProto& tensor) {
  int64_t count = 1;
  for (int64_t dim : tensor.dims()) count *= dim;
  return count;
}

// The exporter's optimizer turns every Constant node into an initializer. Without a sign of it, a
// missing name is a weight that the model itself shares.
bool was_optimized(const SourceGraph& graph) {
  return std::none_of(graph.nodes.begin(), graph.nodes.end(),
                      [](const SourceNode& node) { return node.proto.op_type() == "Constant"; });
}

// Looks for what became of single parameters in an optimized file.
class Search {
 public:
  Search(const SourceGraph& graph, const Signature& signature)
      : graph_(graph), signature_(signature) {
    for (const SourceNode& node : graph.nodes) {
      for (const std::string& name : node.proto.output()) producers_[name] = &node;
      calls_.push_back(metadata(node.proto, kNodeMetadata, "pkg.torch.onnx.fx_node"));
    }
  }

  enum class Fate { kShared, kMerged, kRemoved, kFoldedNorm, kUnused };

  // The nodes made of the call that reads the parameter show it: another parameter in its place
  // (one the model shares, or a merged one), none, or a product that took the normalisation in.
  Fate fate(const std::string& argument) const {
    bool read = false, merged = false, stands_in = false;
    for (size_t i = 0; i < graph_.nodes.size(); i++) {
      if (!names(calls_[i], argument)) continue;
      read = true;
      const ::onnx::NodeProto& node = graph_.nodes[i].proto;
      if (calls_[i].find("batch_norm") != std::string::npos && node.op_type() != "BatchNormalization")
        return Fate::kFoldedNorm;
      for (const std::string& input : node.input()) {
        const TensorProto* tensor = parameter_behind(input);
        if (tensor == nullptr || named_in_call(calls_[i], *tensor)) continue;
        stands_in = true;
        merged = merged || elements(*tensor) <= kMergedAtMost;
      }
    }
    if (!read) return Fate::kUnused;
    return merged ? Fate::kMerged : stands_in ? Fate::kShared : Fate::kRemoved;
  }

 private:
  static bool names(const std::string& call, const std::string& argument) {
    for (const char* end : {",", ")", "]"}) {
      if (call.find("%" + argument + end) != std::string::npos) return true;
    }
    return false;
  }

  // The parameter that a value is, or is the transpose, the cast or a copy of.
  const TensorProto* parameter_behind(const std::string& value) const {
    auto it = graph_.initializers.find(value);
    if (it != graph_.initializers.end()) {
      const bool is_parameter =
          metadata_kind(graph_, value).find("PARAMETER") != std::string::npos ||
          folded_from(graph_, value).size() == 1;
      return is_parameter && it->second->dims_size() > 0 ? it->second : nullptr;
    }
    auto made = producers_.find(value);
    if (made == producers_.end()) return nullptr;
    const ::onnx::NodeProto& node = made->second->proto;
    for (const char* kind : {"Transpose", "Identity", "Cast", "Reshape"}) {
      if (node.op_type() == kind) return parameter_behind(node.input(0));
    }
    return nullptr;
  }

  bool named_in_call(const std::string& call, const TensorProto& tensor) const {
    const std::vector<std::string> from = folded_from(graph_, tensor.name());
    const std::string& name = from.size() == 1 ? from[0] : tensor.name();
    return std::any_of(signature_.begin(), signature_.end(), [&](const auto& entry) {
      return entry.second == name && names(call, entry.first);
    });
  }

  const SourceGraph& graph_;
  const Signature& signature_;
  std::map<std::string, const SourceNode*> producers_;
  std::vector<std::string> calls_;  // of torch.export, by node
};

void report_lost(const std::vector<std::string>& lost, const std::string& how,
                 Diagnostics& diagnostics) {
  if (lost.empty()) return;
  const std::string count = std::to_string(lost.size());
  diagnostics
      .report(Code::E0407, "the exporter " + how + ": " + count +
                               (lost.size() == 1 ? " parameter" : " parameters") +
                               ", the first is `" + lost[0] + "`")
      .note("they could not be trained from this file as they are in the model")
      .help(kRecipe);
}

// A float constant without a name that is added to values a gradient flows through may be a folded
// parameter, as learned positions of a fixed length are.
void warn_about_folded(const SourceGraph& graph, const Weights& weights, Diagnostics& diagnostics) {
  const std::set<std::string> reach = gradient_reach(graph);
  std::set<std::string> warned;
  for (const SourceNode& node : graph.nodes) {
    if (node.proto.op_type() != "Add") continue;
    for (const std::string& name : node.proto.input()) {
      auto it = graph.initializers.find(name);
      if (it == graph.initializers.end() || !is_anonymous(name)) continue;
      const Weight& weight = weights.initializers.at(name);
      ir::DType dtype;
      const bool floats =
          dtype_from_onnx(it->second->data_type(), &dtype) && ir::is_float(dtype);
      // What the exporter says it was folded from is an error if it was a parameter.
      const bool noted = !folded_from(graph, name).empty();
      if (weight.kind != WeightKind::kConstant || weight.treated || !floats || noted ||
          elements(*it->second) < 2 || !reach.count(name) || !warned.insert(name).second)
        continue;
      diagnostics
          .report(Code::W0402, "`" + name + "`, which " + describe(node.proto, node.path) +
                                   " adds, has no parameter's name and is not trained")
          .help("if it comes from a parameter, export with do_constant_folding=False, or write "
                "in the strategy: treat \"" +
                name + "\" as parameter");
    }
  }
}

// PyTorch's TorchScript exporter keeps a convolution's names but where it folds the batch
// normalisation behind it.
void warn_about_folded_norms(const SourceGraph& graph, const Weights& weights,
                             Diagnostics& diagnostics) {
  int count = 0;
  std::string first;
  for (const SourceNode& node : graph.nodes) {
    const bool convolves =
        node.proto.op_type() == "Conv" || node.proto.op_type() == "ConvTranspose";
    if (!convolves || node.proto.input_size() < 2) continue;
    const std::string& name = node.proto.input(1);
    auto weight = weights.initializers.find(name);
    if (weight == weights.initializers.end() || weight->second.treated ||
        weight->second.kind != WeightKind::kParameter)
      continue;
    const bool number = name.find_first_not_of("0123456789") == std::string::npos;
    if (!name.starts_with("onnx::") && !number) continue;
    if (count++ == 0) first = "`" + name + "` of " + describe(node.proto, node.path);
  }
  if (count == 0) return;
  diagnostics
      .report(Code::W0403, std::to_string(count) +
                               (count == 1 ? " convolution has a weight with a made-up name, "
                                           : " convolutions have weights with made-up names, the first is ") +
                               first)
      .note("the exporter computed a batch normalisation into each; they are trained without it");
}

}  // namespace

void check_lost_parameters(const ::onnx::ModelProto& model, const SourceGraph& graph,
                           const Weights& weights, Diagnostics& diagnostics) {
  warn_about_folded(graph, weights, diagnostics);
  warn_about_folded_norms(graph, weights, diagnostics);
  std::set<std::string> kept, folded;
  for (const auto& [name, weight] : graph.weightless) kept.insert(name);
  for (const auto& [name, weight] : weights.initializers) {
    if (weight.kind == WeightKind::kParameter || weight.treated) kept.insert(weight.name);
    if (weight.treated) continue;
    for (const std::string& from : folded_from(graph, name)) folded.insert(from);
  }
  const Signature signature = signature_parameters(model);
  std::vector<std::string> computed, merged, removed, norms;
  const bool optimized = was_optimized(graph);
  const Search search(graph, signature);
  for (const auto& [argument, target] : signature) {
    if (kept.count(target)) continue;
    if (folded.count(target)) {
      computed.push_back(target);
      continue;
    }
    if (!optimized) continue;
    switch (search.fate(argument)) {
      case Search::Fate::kMerged:
        merged.push_back(target);
        break;
      case Search::Fate::kRemoved:
        removed.push_back(target);
        break;
      case Search::Fate::kFoldedNorm:
        norms.push_back(target);
        break;
      case Search::Fate::kShared:
      case Search::Fate::kUnused:
        break;
    }
  }
  report_lost(computed, "computed constants from parameters", diagnostics);
  report_lost(merged, "merged parameters that had equal values", diagnostics);
  report_lost(removed, "removed parameters that were zero", diagnostics);
  report_lost(norms, "folded batch normalisation into the layer before it", diagnostics);
}

void check_cache(const SourceGraph& graph, Diagnostics& diagnostics) {
  std::vector<std::string> cached;
  for (const SourceInput& input : graph.inputs) {
    if (input.name.starts_with("past_key_values") || input.name.starts_with("past.") ||
        input.name.starts_with("past_key") || input.name.starts_with("past_value"))
      cached.push_back(input.name);
  }
  if (cached.empty()) return;
  diagnostics
      .report(Code::E0407, "the model takes keys and values of earlier calls: " +
                               std::to_string(cached.size()) +
                               (cached.size() == 1 ? " input" : " inputs") + ", the first is `" +
                               cached[0] + "`")
      .help("set config.use_cache=False, and " + std::string(kRecipe));
}

}  // namespace piper::frontend
