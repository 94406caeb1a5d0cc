#include "frontend/onnx/source_graph.h"

#include <algorithm>
#include <cctype>

#include "frontend/onnx/dim_expression.h"
#include "frontend/onnx/tensor_data.h"
#include "support/strings.h"

namespace piper::frontend {

using support::Code;
using support::Diagnostics;

std::string describe(const ::onnx::NodeProto& node, const std::optional<std::string>& path) {
  std::string text = "node ";
  text += node.name().empty() ? "of output `" + (node.output_size() > 0 ? node.output(0) : "") + "`"
                              : "`" + node.name() + "`";
  text += " (" + node.op_type() + ")";
  if (path && !path->empty() && !node.name().starts_with("/")) text += " in `" + *path + "`";
  return text;
}

int opset_of(const std::map<std::string, int>& opsets, const std::string& domain) {
  auto it = opsets.find(domain == "ai.onnx" ? "" : domain);
  if (it == opsets.end() && (domain.empty() || domain == "ai.onnx")) it = opsets.find("ai.onnx");
  return it == opsets.end() ? 0 : it->second;
}

namespace {

// A dim that has no number yet, for the one error that lists them all.
struct Unbound {
  std::map<std::string, std::vector<std::string>> inputs_of;  // dim -> inputs
  std::vector<std::string> unnamed;                           // "x.1"
};

class InputReader {
 public:
  InputReader(const ImportOptions& options, TreatRules& treats, SourceGraph* graph,
              Diagnostics& diagnostics)
      : options_(options), treats_(treats), graph_(graph), diagnostics_(diagnostics) {}

  void run(const ::onnx::GraphProto& proto) {
    for (const auto& info : proto.input()) find_kind(info);
    // The symbols of dim 0 mean the batch wherever they stand.
    for (const auto& info : proto.input()) {
      const auto& shape = info.type().tensor_type().shape();
      if (is_data(info) && shape.dim_size() > 0 && !options_.static_batch &&
          is_name(shape.dim(0).dim_param()))
        batch_symbols_.insert(shape.dim(0).dim_param());
    }
    for (const auto& info : proto.input()) read(info);
    report_unbound();
  }

 private:
  // In files of IR below 4 every initializer is listed as an input too: its default, not data.
  bool is_data(const ::onnx::ValueInfoProto& info) const {
    return !graph_->initializers.count(info.name()) && !weights_.count(info.name());
  }

  // A file without weights has them among its inputs: the exporter or the strategy says which.
  void find_kind(const ::onnx::ValueInfoProto& info) {
    const std::string& name = info.name();
    if (graph_->initializers.count(name)) return;
    const std::string kind =
        metadata(info, kValueInfoMetadata, "pkg.torch.export.graph_signature.InputSpec.kind");
    const ir::Treat* treat = treats_.find(name, name);
    if (treat != nullptr && treat->kind == ir::WeightKind::kConstant) {
      treats_.refuse(*treat, "the file has no value of `" + name + "`");
    } else if (treat != nullptr) {
      weights_[name] = treat->kind;
    } else if (kind.find("PARAMETER") != std::string::npos) {
      weights_[name] = ir::WeightKind::kParameter;
    } else if (kind.find("BUFFER") != std::string::npos ||
               kind.find("CONSTANT") != std::string::npos) {
      weights_[name] = ir::WeightKind::kBuffer;
    }
  }

  void read(const ::onnx::ValueInfoProto& info) {
    if (graph_->initializers.count(info.name())) return;
    const auto& tensor = info.type().tensor_type();
    ir::TensorType type;
    if (!info.type().has_tensor_type() || !dtype_from_onnx(tensor.elem_type(), &type.dtype)) {
      diagnostics_.report(
          Code::E0405, "input `" + info.name() + "` has element type " +
                           (info.type().has_tensor_type() ? onnx_type_name(tensor.elem_type())
                                                          : std::string("that is not a tensor")) +
                           ", which is not supported");
      return;
    }
    if (!tensor.has_shape()) {
      diagnostics_.report(Code::E0405, "input `" + info.name() + "` has no shape")
          .help("export the model with the shapes of its inputs");
      return;
    }
    const auto weight = weights_.find(info.name());
    const bool is_weight = weight != weights_.end();
    const int batch_dim = is_weight || options_.static_batch ? -1 : find_batch(tensor.shape());
    for (int i = 0; i < tensor.shape().dim_size(); i++) {
      type.shape.push_back(dim(info.name(), tensor.shape().dim(i), i, i == batch_dim));
    }
    const auto batched = std::count_if(type.shape.begin(), type.shape.end(),
                                       [](ir::Dim dim) { return !dim.is_static(); });
    if (batched > (is_weight ? 0 : 1)) {
      diagnostics_.report(Code::E0406, (is_weight ? "parameter `" : "input `") + info.name() +
                                           "` is " + to_string(type) + ": " +
                                           (is_weight ? "it has a dim" : "two of its dims are") +
                                           " of the batch size");
      return;
    }
    if (is_weight) {
      graph_->weightless[info.name()] = {type, weight->second};
    } else {
      graph_->inputs.push_back({info.name(), type});
    }
  }

  using OnnxDim = ::onnx::TensorShapeProto::Dimension;

  // Which dim of an input carries the samples: the first, unless that is a number and another one
  // has the batch's name, as in the state [layers, batch, width] of a recurrent layer.
  int find_batch(const ::onnx::TensorShapeProto& shape) const {
    if (shape.dim_size() == 0 || !shape.dim(0).has_dim_value()) return 0;
    for (int i = 1; i < shape.dim_size(); i++) {
      if (batch_symbols_.count(shape.dim(i).dim_param())) return i;
    }
    return 0;
  }

  static bool is_name(const std::string& text) {
    return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
           std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
  }

  // A number, also one that the exporter wrote as text.
  static std::optional<int64_t> number(const OnnxDim& dim) {
    if (dim.has_dim_value()) return dim.dim_value();
    const DimText text =
        evaluate_dim(dim.dim_param(), [](const std::string&) { return std::nullopt; });
    return text.value ? std::optional<int64_t>(text.value->constant) : std::nullopt;
  }

  ir::Dim dim(const std::string& input, const OnnxDim& dim, int index, bool batch) {
    if (auto size = number(dim)) return batch ? literal_batch(input, *size) : ir::Dim(*size);
    const std::string& text = dim.dim_param();
    if (batch && (text.empty() || is_name(text) || batch_symbols_.empty()))
      return ir::Dim::batch_size();
    if (text.empty()) {  // a strategy calls it by its place
      const std::string place = input + "." + std::to_string(index);
      if (auto it = options_.dims.find(place); it != options_.dims.end()) return it->second;
      unbound_.unnamed.push_back(place);
      return ir::Dim(std::max<int64_t>(options_.assume_dim, 1));
    }
    const ir::Dim size = computed(input, text);
    if (batch && size != ir::Dim::batch_size() && size != ir::Dim(1)) {
      diagnostics_
          .report(Code::E0406, "input `" + input + "` has `" + text + "` samples, which is " +
                                   to_string(size) + " of a batch of B")
          .note("dim 0 of every input is the batch");
    }
    return size;
  }

  ir::Dim literal_batch(const std::string& input, int64_t size) {
    if (graph_->literal_batch && *graph_->literal_batch != size) {
      diagnostics_
          .report(Code::E0406, "input `" + input + "` has " + std::to_string(size) +
                                   " samples, another input has " +
                                   std::to_string(*graph_->literal_batch))
          .note("dim 0 of every input is the batch");
    }
    graph_->literal_batch = size;
    return ir::Dim::batch_size();
  }

  // A named dim, or an expression of named dims.
  ir::Dim computed(const std::string& input, const std::string& text) {
    const DimText size =
        evaluate_dim(text, [&](const std::string& name) { return size_of(name, 0); });
    if (size.value && (size.value->constant > 0 || size.value->batch > 0)) return *size.value;
    std::vector<std::string> names = size.unbound;
    if (!size.understood || names.empty()) names = {text};
    for (const std::string& name : names) {
      auto& inputs = unbound_.inputs_of[name];
      if (inputs.empty() || inputs.back() != input) inputs.push_back(input);
    }
    const DimText assumed = evaluate_dim(
        text, [&](const std::string& name) { return size_of(name, options_.assume_dim); });
    if (assumed.value && (assumed.value->constant > 0 || assumed.value->batch > 0))
      return *assumed.value;
    return ir::Dim(std::max<int64_t>(options_.assume_dim, 1));
  }

  // The size of a symbol; `otherwise` for one that is not bound, when that is a size.
  std::optional<ir::Dim> size_of(const std::string& name, int64_t otherwise) const {
    if (batch_symbols_.count(name)) return ir::Dim::batch_size();
    auto it = options_.dims.find(name);
    if (it != options_.dims.end()) return ir::Dim(it->second);
    return otherwise > 0 ? std::optional<ir::Dim>(otherwise) : std::nullopt;
  }

  void report_unbound() {
    if (options_.notes != nullptr) {
      options_.notes->assumed = unbound_.inputs_of;
      options_.notes->assumed_unnamed = unbound_.unnamed;
      options_.notes->assumed_size = options_.assume_dim;
    }
    if (options_.assume_dim > 0) return;
    std::vector<std::string> parts;
    for (const auto& [symbol, inputs] : unbound_.inputs_of) {
      parts.push_back("`" + symbol + "` (of `" + support::join(inputs, "`, `") + "`)");
    }
    for (const std::string& place : unbound_.unnamed) {
      const size_t dot = place.rfind('.');
      parts.push_back("dim " + place.substr(dot + 1) + " of `" + place.substr(0, dot) +
                      "`, which has no name");
    }
    if (parts.empty()) return;
    auto& error = diagnostics_.report(
        Code::E0403, "the model has dims without a size: " + support::join(parts, "; "));
    for (const auto& [symbol, inputs] : unbound_.inputs_of) {
      error.help("give it one in the strategy: dim \"" + symbol + "\" = 128");
    }
    for (const std::string& place : unbound_.unnamed) {
      error.help("give it one by its place, in the strategy: dim \"" + place + "\" = 128");
    }
  }

  const ImportOptions& options_;
  TreatRules& treats_;
  SourceGraph* graph_;
  Diagnostics& diagnostics_;
  std::map<std::string, ir::WeightKind> weights_;  // inputs that are no data
  std::set<std::string> batch_symbols_;
  Unbound unbound_;
};

void collect_infos(const ::onnx::GraphProto& proto, SourceGraph* graph) {
  for (const auto& info : proto.value_info()) graph->infos[info.name()] = &info;
  for (const auto& info : proto.input()) graph->infos[info.name()] = &info;
  for (const auto& info : proto.output()) graph->infos.emplace(info.name(), &info);
}

}  // namespace

std::optional<SourceGraph> make_source_graph(const ::onnx::ModelProto& model,
                                             const ImportOptions& options, TreatRules& treats,
                                             Diagnostics& diagnostics) {
  const int errors = diagnostics.error_count();
  SourceGraph graph;
  const ::onnx::GraphProto& proto = model.graph();
  for (const auto& import : model.opset_import())
    graph.opsets[import.domain()] = static_cast<int>(import.version());
  for (const auto& tensor : proto.initializer()) graph.initializers[tensor.name()] = &tensor;
  if (proto.sparse_initializer_size() > 0) {
    diagnostics.report(Code::E0404, "the model has sparse initializers, which are not supported");
  }
  collect_infos(proto, &graph);
  InputReader(options, treats, &graph, diagnostics).run(proto);
  for (const auto& output : proto.output()) graph.outputs.push_back(output.name());
  if (!inline_functions(model, &graph.nodes, diagnostics)) return std::nullopt;

  std::set<std::string> known;
  for (const auto& [name, tensor] : graph.initializers) known.insert(name);
  for (const auto& info : proto.input()) known.insert(info.name());
  if (!sort_nodes(&graph.nodes, known, diagnostics)) return std::nullopt;
  for (const SourceNode& node : graph.nodes)
    known.insert(node.proto.output().begin(), node.proto.output().end());
  for (const std::string& output : graph.outputs) {
    if (!known.count(output)) {
      diagnostics.report(Code::E0404, "nothing makes output `" + output + "` of the model");
    }
  }
  if (diagnostics.error_count() > errors) return std::nullopt;
  return graph;
}

}  // namespace piper::frontend
