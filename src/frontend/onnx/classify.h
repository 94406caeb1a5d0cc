// Which initializers are parameters, which are buffers, which are plain constants, and under what
// names: from the exporter's metadata, else from names, else from where a gradient can reach.
#pragma once

#include <map>
#include <string>

#include "frontend/onnx/source_graph.h"
#include "frontend/onnx/tensor_data.h"
#include "frontend/onnx/treat.h"

namespace piper::frontend {

using ir::WeightKind;

struct Weight {
  WeightKind kind = WeightKind::kConstant;
  std::string name;         // as the framework knows it
  bool transposed = false;  // the file holds the transpose of what the framework calls by that name
  std::string transpose_of;  // constant folding made this copy of another initializer, a weight
                             // that two modules share
  bool treated = false;      // its kind is the strategy's
  std::string reason;        // why it is of this kind, for people
};

// A parameter that the exporter merged with another one of equal value: an Identity makes it from
// that one's initializer.
struct Twin {
  Weight weight;
  std::string initializer;
};

struct Weights {
  std::map<std::string, Weight> initializers;
  std::map<std::string, Twin> twins;  // by the name of the Identity's output
};
Weights classify_weights(const SourceGraph& graph, TensorDecoder& decoder, TreatRules& treats);

// Makes initializers of weights that are Constant nodes.
void hoist_constants(::onnx::ModelProto* model);

// Names that exporters make up for values that had none.
bool is_anonymous(const std::string& name);
// What the exporter says about a value; "" when it says nothing.
std::string metadata_kind(const SourceGraph& graph, const std::string& name);
// What the exporter's optimizer computed a constant from.
std::vector<std::string> folded_from(const SourceGraph& graph, const std::string& name);
// Names through which a gradient of some output flows.
std::set<std::string> gradient_reach(const SourceGraph& graph);

// Whether a name looks like a parameter's: dotted, made of identifiers.
bool is_dotted_name(const std::string& name);

// Errors for parameters that the exporter's own list has and the file has lost, by merging equal
// values or by folding them into constants; warnings for constants that look like a folded
// parameter.
void check_lost_parameters(const ::onnx::ModelProto& model, const SourceGraph& graph,
                           const Weights& weights, support::Diagnostics& diagnostics);
// An error for a graph that continues from cached keys and values.
void check_cache(const SourceGraph& graph, support::Diagnostics& diagnostics);

}  // namespace piper::frontend
