// Model-local functions: a call becomes the function's body with its values renamed and its
// attribute references replaced. Functions of domain `piper` stay calls, because they are canonical
// operations.

#include "frontend/onnx/source_graph.h"

namespace piper::frontend {

using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::NodeProto;

namespace {

// These are fields newer than the installed schema: default values of a function's attributes.
constexpr int kFunctionAttributeDefaults = 11;
// Functions of one name are told apart by a third part (IR 10), which a call names too.
constexpr int kFunctionOverload = 13;
constexpr int kNodeOverload = 8;
constexpr int kMaxDepth = 32;

std::map<std::string, AttributeProto> attribute_defaults(const FunctionProto& function) {
  std::map<std::string, AttributeProto> defaults;
  const auto& unknown = function.GetReflection()->GetUnknownFields(function);
  for (int i = 0; i < unknown.field_count(); i++) {
    const auto& field = unknown.field(i);
    if (field.number() != kFunctionAttributeDefaults) continue;
    if (field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) continue;
    AttributeProto attribute;
    if (attribute.ParseFromString(field.length_delimited())) defaults[attribute.name()] = attribute;
  }
  return defaults;
}

class Inliner {
 public:
  Inliner(const ::onnx::ModelProto& model, std::vector<SourceNode>* out,
          support::Diagnostics& diagnostics)
      : out_(out), diagnostics_(diagnostics) {
    for (const FunctionProto& f : model.functions()) functions_[{f.domain(), f.name(), unknown_string(f, kFunctionOverload)}] = &f;
    for (const auto& import : model.opset_import())
      opsets_[import.domain()] = static_cast<int>(import.version());
  }

  bool run(const ::onnx::GraphProto& graph) {
    for (const NodeProto& node : graph.node()) {
      if (!add(node, opsets_, 0)) return false;
    }
    return true;
  }

 private:
  bool add(const NodeProto& node, const std::map<std::string, int>& opsets, int depth) {
    auto it = functions_.find({node.domain(), node.op_type(), unknown_string(node, kNodeOverload)});
    if (it == functions_.end() || node.domain() == "piper") {
      SourceNode source;
      source.proto = node;
      source.opset = opset_of(opsets, node.domain());
      source.path = exporter_path(node);
      out_->push_back(std::move(source));
      return true;
    }
    if (depth == kMaxDepth) {
      diagnostics_.report(support::Code::E0404, "function `" + node.op_type() + "` calls itself");
      return false;
    }
    return expand(node, *it->second, depth);
  }

  bool expand(const NodeProto& call, const FunctionProto& function, int depth) {
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
      diagnostics_.report(support::Code::E0404, "node `" + call.name() + "` calls function `" +
                                                    function.name() +
                                                    "` with more inputs or outputs than it has");
      return false;
    }
    std::map<std::string, std::string> renamed;
    for (int i = 0; i < function.input_size(); i++) {
      renamed[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    }
    for (int i = 0; i < function.output_size() && i < call.output_size(); i++) {
      if (!call.output(i).empty()) renamed[function.output(i)] = call.output(i);
    }
    std::map<std::string, AttributeProto> attributes = attribute_defaults(function);
    for (const AttributeProto& attribute : call.attribute())
      attributes[attribute.name()] = attribute;
    std::map<std::string, int> opsets = opsets_;
    for (const auto& import : function.opset_import())
      opsets[import.domain()] = static_cast<int>(import.version());

    const std::string scope =
        (call.name().empty() ? function.name() : call.name()) + "#" + std::to_string(calls_++);
    for (const NodeProto& inner : function.node()) {
      NodeProto node = inner;
      rename(&node, scope, &renamed);
      bind_attributes(&node, attributes);
      // The body belongs to the module of the call unless it says better.
      if (!exporter_path(node) && call.name().starts_with("/"))
        node.set_name(call.name() + "/" + node.op_type());
      if (!add(node, opsets, depth + 1)) return false;
    }
    return true;
  }

  static void rename(NodeProto* node, const std::string& scope,
                     std::map<std::string, std::string>* renamed) {
    auto map = [&](std::string* name) {
      if (name->empty()) return;
      auto [it, added] = renamed->try_emplace(*name, scope + "/" + *name);
      *name = it->second;
    };
    for (std::string& name : *node->mutable_input()) map(&name);
    for (std::string& name : *node->mutable_output()) map(&name);
    if (!node->name().empty() && !node->name().starts_with("/"))
      node->set_name(scope + "/" + node->name());
  }

  // An attribute that refers to one of the call's gets its value, or goes when the call has none.
  static void bind_attributes(NodeProto* node,
                              const std::map<std::string, AttributeProto>& attributes) {
    for (int i = node->attribute_size() - 1; i >= 0; i--) {
      AttributeProto* attribute = node->mutable_attribute(i);
      if (attribute->ref_attr_name().empty()) continue;
      auto it = attributes.find(attribute->ref_attr_name());
      const std::string name = attribute->name();
      if (it == attributes.end()) {
        node->mutable_attribute()->DeleteSubrange(i, 1);
      } else {
        *attribute = it->second;
        attribute->set_name(name);
      }
    }
  }

  std::map<std::tuple<std::string, std::string, std::string>, const FunctionProto*> functions_;  // domain, name, overload
  std::map<std::string, int> opsets_;
  std::vector<SourceNode>* out_;
  support::Diagnostics& diagnostics_;
  int calls_ = 0;
};

}  // namespace

bool inline_functions(const ::onnx::ModelProto& model, std::vector<SourceNode>* nodes,
                      support::Diagnostics& diagnostics) {
  return Inliner(model, nodes, diagnostics).run(model.graph());
}

}  // namespace piper::frontend
