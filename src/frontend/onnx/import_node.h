// One ONNX node to ops of the model: known integers, the few operators that are the importer's own
// business (constants, shapes, sequences, branches), else the import rule of the op's folder.
#pragma once

#include <set>
#include <string>

#include "frontend/onnx/attributes.h"
#include "frontend/onnx/builder.h"

namespace piper::frontend {

// Opsets above this are imported by the rules of this one.
constexpr int kNewestOpset = 23;

// Operators that need no import rule.
bool is_importer_op(const std::string& op_type);

// Adds the names of all values that a node reads, those that its branches read among them.
void add_used_names(const ::onnx::NodeProto& node, std::set<std::string>* used);

class NodeImporter {
 public:
  NodeImporter(Builder& builder, std::set<std::string> used, support::Diagnostics& diagnostics)
      : builder_(builder), used_(std::move(used)), diagnostics_(diagnostics) {}

  // Imports the node or reports why not. After an error its outputs are unknown, and nodes that
  // read them are passed over in silence, so that one mistake is one message.
  void run(const SourceNode& node);

 private:
  friend class RuleContext;
  using Done = support::Expected<bool>;  // whether the node was handled

  bool reads_failed(const SourceNode& node) const;
  void fail(const SourceNode& node, support::Code code, const support::Error& error);
  support::Expected<void> import(const SourceNode& node, const NodeAttributes& attributes);
  Done try_known(const SourceNode& node, const ir::Attrs& attrs);
  Done try_special(const SourceNode& node, const NodeAttributes& attributes);
  support::Expected<void> import_by_rule(const SourceNode& node, const NodeAttributes& attributes);

  support::Expected<void> import_constant(const SourceNode& node, const NodeAttributes& attributes);
  support::Expected<void> import_constant_of_shape(const SourceNode& node,
                                                   const NodeAttributes& attributes);
  support::Expected<void> import_shape(const SourceNode& node, const ir::Attrs& attrs);
  support::Expected<void> import_identity(const SourceNode& node);
  support::Expected<void> import_split_to_sequence(const SourceNode& node, const ir::Attrs& attrs);
  support::Expected<void> import_sequence_at(const SourceNode& node);
  support::Expected<void> import_sequence_construct(const SourceNode& node);
  support::Expected<void> import_concat_from_sequence(const SourceNode& node,
                                                      const ir::Attrs& attrs);
  support::Expected<void> import_if(const SourceNode& node, const NodeAttributes& attributes);

  // The one output of an op of this node.
  support::Expected<ir::ValueId> emit(const SourceNode& node, const char* kind,
                                      std::vector<ir::ValueId> inputs, ir::Attrs attrs);
  void set_output(const SourceNode& node, int i, ir::ValueId value);
  void set_known(const SourceNode& node, KnownInts known);

  Builder& builder_;
  std::set<std::string> used_;    // names that some node or output reads
  std::set<std::string> failed_;  // names without a value because of an error
  support::Diagnostics& diagnostics_;
  int64_t node_index_ = -1;
  support::Code error_code_ = support::Code::E0405;  // of the error that import returns
};

}  // namespace piper::frontend
