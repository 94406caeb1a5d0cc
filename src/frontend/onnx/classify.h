// Which initializers are parameters, which are buffers, which are plain constants, and under what
// names: from the exporter's metadata, else from names, else from where a gradient can reach.
#pragma once

#include <map>
#include <string>

#include "frontend/onnx/source_graph.h"

namespace piper::frontend {

enum class WeightKind { kParameter, kBuffer, kConstant };

struct Weight {
  WeightKind kind = WeightKind::kConstant;
  std::string name;         // as the framework knows it
  bool transposed = false;  // the file holds the transpose of what the framework calls by that name
  std::string transpose_of;  // constant folding made this copy of another initializer, a weight
                             // that two modules share
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
Weights classify_weights(const SourceGraph& graph);

// Whether a name looks like a parameter's: dotted, made of identifiers.
bool is_dotted_name(const std::string& name);

// Errors for parameters that the exporter's own list has and the file has lost, by merging equal
// values or by folding them into constants; warnings for constants that look like a folded
// parameter.
void check_lost_parameters(const ::onnx::ModelProto& model, const SourceGraph& graph,
                           const Weights& weights, support::Diagnostics& diagnostics);

}  // namespace piper::frontend
