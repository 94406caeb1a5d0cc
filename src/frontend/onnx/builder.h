// The model while it is being imported: names of the ONNX graph and what is known about each, and
// how ops are added.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/onnx/classify.h"
#include "frontend/onnx/known_ints.h"
#include "frontend/onnx/source_graph.h"
#include "frontend/onnx/tensor_data.h"
#include "ir/model.h"

namespace piper::frontend {

// A value of the ONNX graph. Known integers become a constant of the model only when an op reads
// them.
struct Entry {
  ir::ValueId value;
  std::optional<KnownInts> known;
  std::vector<ir::ValueId> sequence;
  bool is_sequence = false;
};

class Builder {
 public:
  Builder(const SourceGraph& graph, TensorDecoder& decoder) : graph_(graph), decoder_(decoder) {}

  ir::Model& model() { return model_; }
  const ir::Model& model() const { return model_; }
  const SourceGraph& graph() const { return graph_; }

  void add_inputs();
  void set_weights(Weights weights) { weights_ = std::move(weights); }
  // More initializers, of the graph of a branch.
  void add_initializer(const ::onnx::TensorProto& tensor) {
    extra_initializers_[tensor.name()] = &tensor;
  }

  // The entry of a name; an initializer is added to the model when it is first asked for.
  support::Expected<Entry*> find(const std::string& name);
  void set(const std::string& name, Entry entry) { entries_[name] = std::move(entry); }
  // The value of a name, made a constant when only its integers were known.
  support::Expected<ir::ValueId> value(const std::string& name);
  // The small integers a name stands for, when they are known.
  support::Expected<const KnownInts*> known(const std::string& name);
  // The parameter that an Identity makes under this name, when it is a merged one.
  const Twin* twin(const std::string& name) const;

  // Adds an op, unless it does nothing or can be computed now. `path`: module of the op, when the
  // exporter said it.
  support::Expected<std::vector<ir::ValueId>> emit(ir::Op op,
                                                   const std::optional<std::string>& path);
  ir::ValueId add_parameter(const std::string& name, const std::string& initializer,
                            const ir::TensorType& type, const Weight& weight);
  // A parameter, buffer or constant whose value is the tensor.
  support::Expected<ir::ValueId> add_weight(const Weight& weight,
                                            const ::onnx::TensorProto& tensor,
                                            const ir::TensorType& type);
  ir::ValueId add_constant(const std::string& name, const ir::TensorType& type,
                           std::vector<std::byte> bytes);
  // A tensor that is an attribute of a node; its name is made up.
  support::Expected<ir::ValueId> tensor_constant(const ::onnx::TensorProto& tensor);
  ir::ValueId scalar(ir::DType dtype, double value);
  // Gives a computed value the name that the ONNX graph has for it.
  void name_value(ir::ValueId id, const std::string& name);

  // Ends the import: outputs, and paths of ops that the exporter gave none.
  support::Expected<void> finish();
  // Float buffers that ops still read become parameters that are not trained: their values stay in
  // the file.
  void keep_buffers();

 private:
  support::Expected<Entry*> load_initializer(const ::onnx::TensorProto& tensor);
  support::Expected<Entry*> load_transposed(const std::string& name, const Weight& weight);
  // An input whose samples are in dim 0, with them in another dim.
  ir::ValueId samples_at(ir::ValueId input, size_t dim);
  void fill_paths();

  // A constant that becomes a parameter that is not trained, if ops read it at the end.
  struct Buffer {
    ir::ValueId value;
    std::string initializer;
    bool transposed = false;
  };

  const SourceGraph& graph_;
  TensorDecoder& decoder_;
  ir::Model model_;
  Weights weights_;
  std::unordered_map<std::string, Entry> entries_;
  std::unordered_map<std::string, const ::onnx::TensorProto*> extra_initializers_;
  std::set<int32_t> named_;     // values whose names are the graph's
  std::vector<bool> has_path_;  // by op
  std::vector<Buffer> buffers_;
};

// Scalar bytes of a value in a type; integers of a known tensor as bytes.
std::vector<std::byte> scalar_bytes(ir::DType dtype, double value);
std::vector<std::byte> known_bytes(const KnownInts& known);

}  // namespace piper::frontend
