// Weights that an exporter wrote as Constant nodes (Paddle's does, and tools that rebuild a graph)
// become initializers, so that everything behind reads weights in one form.

#include <algorithm>

#include "frontend/onnx/classify.h"
#include "frontend/onnx/tensor_data.h"

namespace piper::frontend {

using ::onnx::NodeProto;
using ::onnx::TensorProto;

namespace {

// The tensor of a node that may be a weight: floats, more than one, under a name that somebody gave.
// What exporters compute on the way (tables, masks, bounds) has names that they make up.
TensorProto* weight_of(NodeProto& node) {
  if (node.op_type() != "Constant" || node.output_size() != 1 || is_anonymous(node.output(0)))
    return nullptr;
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() != "value" || !attribute.has_t()) continue;
    const TensorProto& tensor = attribute.t();
    ir::DType dtype;
    const bool floats = dtype_from_onnx(tensor.data_type(), &dtype) && ir::is_float(dtype);
    const bool several =
        std::any_of(tensor.dims().begin(), tensor.dims().end(), [](int64_t dim) { return dim > 1; });
    return floats && several ? attribute.mutable_t() : nullptr;
  }
  return nullptr;
}

}  // namespace

void hoist_constants(::onnx::ModelProto* model) {
  // PyTorch writes every parameter as an initializer; a Constant that it named is a local variable.
  if (model->producer_name() == "pytorch") return;
  ::onnx::GraphProto* graph = model->mutable_graph();
  auto* nodes = graph->mutable_node();
  int kept = 0;
  for (int i = 0; i < nodes->size(); i++) {
    if (TensorProto* tensor = weight_of(*nodes->Mutable(i))) {
      const std::string name = nodes->Get(i).output(0);
      TensorProto* initializer = graph->add_initializer();
      initializer->Swap(tensor);
      initializer->set_name(name);
      continue;
    }
    if (kept < i) nodes->SwapElements(kept, i);
    kept++;
  }
  nodes->DeleteSubrange(kept, nodes->size() - kept);
}

}  // namespace piper::frontend
