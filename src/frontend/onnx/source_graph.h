// The model file as a flat, sorted list of nodes: functions inlined, dims bound, paths known. What
// the importer walks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "frontend/onnx/proto.h"
#include "frontend/onnx/treat.h"

namespace piper::frontend {

struct SourceNode {
  ::onnx::NodeProto proto;
  int opset = 0;
  // Dotted module path the exporter wrote; nothing when it wrote none ("" is the root module).
  std::optional<std::string> path;
};

struct SourceInput {
  std::string name;
  ir::TensorType type;
};

// A parameter or buffer that the file has no value of.
struct WeightInput {
  ir::TensorType type;
  ir::WeightKind kind = ir::WeightKind::kParameter;
};

struct SourceGraph {
  std::vector<SourceNode> nodes;  // in topological order
  std::vector<SourceInput> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, const ::onnx::TensorProto*> initializers;
  // Inputs that are parameters or buffers, in a file without weights.
  std::map<std::string, WeightInput> weightless;
  // What the exporter wrote about a value: its ValueInfoProto, from value_info, inputs or outputs.
  std::map<std::string, const ::onnx::ValueInfoProto*> infos;
  std::map<std::string, int> opsets;  // per domain
  // The batch size that the exporter wrote into the inputs, when it did.
  std::optional<int64_t> literal_batch;
};

// `node "/a/b" (Reshape) in a` for messages.
std::string describe(const ::onnx::NodeProto& node, const std::optional<std::string>& path);

// Opset of a domain as the model imports it; 0 when it does not.
int opset_of(const std::map<std::string, int>& opsets, const std::string& domain);

// Replaces calls of functions that the model defines by their bodies, except those of domain
// `piper`.
bool inline_functions(const ::onnx::ModelProto& model, std::vector<SourceNode>* nodes,
                      support::Diagnostics& diagnostics);
// Sorts nodes so that every one comes after what it reads; `known` are the names that exist
// already.
bool sort_nodes(std::vector<SourceNode>* nodes, const std::set<std::string>& known,
                support::Diagnostics& diagnostics);
// Module path from the exporter's metadata or from the node's name.
std::optional<std::string> exporter_path(const ::onnx::NodeProto& node);
// The strings of a Python list as text: "['', 'model', 'linear_3']".
std::vector<std::string> python_strings(const std::string& text);
// Module of a parameter: "a.b.weight" is "a.b".
std::string module_of(const std::string& parameter);

// Builds the graph of `model`, which must outlive it. Reports and returns nothing on errors.
std::optional<SourceGraph> make_source_graph(const ::onnx::ModelProto& model,
                                             const ImportOptions& options, TreatRules& treats,
                                             support::Diagnostics& diagnostics);

}  // namespace piper::frontend
