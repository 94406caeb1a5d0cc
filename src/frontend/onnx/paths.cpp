// Module paths of nodes, in one spelling whatever exporter wrote them:
// "model.layers.0.mlp.up_proj".

#include "frontend/onnx/source_graph.h"
#include "support/strings.h"

namespace piper::frontend {

namespace {

// torch.export keeps the module names as they grow, then the name of the operation.
std::optional<std::string> from_name_scopes(const ::onnx::NodeProto& node) {
  const std::string text = metadata(node, kNodeMetadata, "pkg.torch.onnx.name_scopes");
  if (text.empty()) return std::nullopt;
  const std::vector<std::string> scopes = python_strings(text);
  // The root module is first; a list without it comes from a step of the exporter, not from the
  // model.
  if (scopes.size() < 2 || !scopes[0].empty()) return std::nullopt;
  return scopes[scopes.size() - 2];
}

// TorchScript: "/model/layers.0/mlp/up_proj/MatMul".
std::optional<std::string> from_node_name(const ::onnx::NodeProto& node) {
  if (!node.name().starts_with("/")) return std::nullopt;
  std::vector<std::string> parts = support::split(std::string_view(node.name()).substr(1), '/');
  parts.pop_back();
  return support::join(parts, ".");
}

}  // namespace

std::vector<std::string> python_strings(const std::string& text) {
  std::vector<std::string> strings;
  for (size_t i = 0; i < text.size(); i++) {
    const char quote = text[i];
    if (quote != '\'' && quote != '"') continue;
    std::string item;
    for (i++; i < text.size() && text[i] != quote; i++) {
      if (text[i] == '\\' && i + 1 < text.size()) i++;
      item += text[i];
    }
    strings.push_back(std::move(item));
  }
  return strings;
}

std::optional<std::string> exporter_path(const ::onnx::NodeProto& node) {
  if (auto path = from_name_scopes(node)) return path;
  return from_node_name(node);
}

std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

}  // namespace piper::frontend
