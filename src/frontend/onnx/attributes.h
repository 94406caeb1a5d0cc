// AttributeProto to ir::Attrs, checked against the table of what each operator may have.
#pragma once

#include <map>
#include <string>

#include "frontend/onnx/proto.h"
#include "ir/attributes.h"
#include "support/error.h"

namespace piper::frontend {

struct NodeAttributes {
  ir::Attrs attrs;
  std::map<std::string, const ::onnx::TensorProto*> tensors;
  std::map<std::string, const ::onnx::GraphProto*> graphs;
};

// An error names the attribute and what is wrong with it.
support::Expected<NodeAttributes> decode_attributes(const ::onnx::NodeProto& node);

}  // namespace piper::frontend
