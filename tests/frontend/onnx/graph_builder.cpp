#include "tests/frontend/onnx/graph_builder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include "support/source.h"

namespace piper::test {

using ::onnx::TensorProto;

GraphBuilder::GraphBuilder(int opset, int ir_version) {
  model_.set_ir_version(ir_version);
  model_.set_producer_name("test");
  auto* import = model_.add_opset_import();
  import->set_domain("");
  import->set_version(opset);
  graph().set_name("graph");
}

GraphBuilder& GraphBuilder::use_f64() {
  f64_ = true;
  return *this;
}

int GraphBuilder::float_type() const { return f64_ ? TensorProto::DOUBLE : TensorProto::FLOAT; }

std::string GraphBuilder::fresh(const std::string& base) {
  return base + "_" + std::to_string(next_++);
}

namespace {

void set_value_info(::onnx::ValueInfoProto* info, const std::string& name, int type,
                    const std::vector<Dim>& dims) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  for (const Dim& dim : dims) {
    auto* proto = tensor->mutable_shape()->add_dim();
    if (const int64_t* number = std::get_if<int64_t>(&dim)) proto->set_dim_value(*number);
    if (const std::string* symbol = std::get_if<std::string>(&dim); symbol && *symbol != "?")
      proto->set_dim_param(*symbol);
  }
}

void fill(TensorProto* tensor, int type, const std::vector<int64_t>& dims,
          const std::vector<double>& values) {
  tensor->set_data_type(type);
  for (int64_t dim : dims) tensor->add_dims(dim);
  std::string raw;
  for (double value : values) {
    const float f = static_cast<float>(value);
    const char b = value != 0;
    if (type == TensorProto::FLOAT) raw.append(reinterpret_cast<const char*>(&f), sizeof(f));
    if (type == TensorProto::DOUBLE)
      raw.append(reinterpret_cast<const char*>(&value), sizeof(value));
    if (type == TensorProto::BOOL) raw.push_back(b);
  }
  tensor->set_raw_data(raw);
}

void fill_ints(TensorProto* tensor, const std::vector<int64_t>& dims,
               const std::vector<int64_t>& values) {
  tensor->set_data_type(TensorProto::INT64);
  for (int64_t dim : dims) tensor->add_dims(dim);
  tensor->set_raw_data(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)));
}

}  // namespace

std::string GraphBuilder::input(const std::string& name, const std::vector<Dim>& dims, int type) {
  set_value_info(graph().add_input(), name, type == 0 ? float_type() : type, dims);
  return name;
}

std::string GraphBuilder::weight(const std::string& name, const std::vector<int64_t>& dims,
                                 double scale) {
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(name)));
  std::normal_distribution<double> normal(0, scale);
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = normal(random);
  return floats(name, dims, values);
}

std::string GraphBuilder::floats(const std::string& name, const std::vector<int64_t>& dims,
                                 const std::vector<double>& values) {
  TensorProto* tensor = graph().add_initializer();
  tensor->set_name(name);
  fill(tensor, float_type(), dims, values);
  return name;
}

std::string GraphBuilder::ints(const std::string& name, const std::vector<int64_t>& dims,
                               const std::vector<int64_t>& values) {
  TensorProto* tensor = graph().add_initializer();
  tensor->set_name(name);
  fill_ints(tensor, dims, values);
  return name;
}

std::string GraphBuilder::bools(const std::string& name, const std::vector<int64_t>& dims,
                                const std::vector<int>& values) {
  TensorProto* tensor = graph().add_initializer();
  tensor->set_name(name);
  fill(tensor, TensorProto::BOOL, dims, {values.begin(), values.end()});
  return name;
}

std::string GraphBuilder::scalar(double value) {
  const std::string name = node("Constant", {});
  auto* attribute = last_node().add_attribute();
  attribute->set_name("value");
  attribute->set_type(::onnx::AttributeProto::TENSOR);
  fill(attribute->mutable_t(), float_type(), {}, {value});
  return name;
}

std::string GraphBuilder::shape(const std::vector<int64_t>& dims) {
  const std::string name = node("Constant", {});
  auto* attribute = last_node().add_attribute();
  attribute->set_name("value");
  attribute->set_type(::onnx::AttributeProto::TENSOR);
  fill_ints(attribute->mutable_t(), {static_cast<int64_t>(dims.size())}, dims);
  return name;
}

std::string GraphBuilder::node(const std::string& op, const std::vector<std::string>& inputs,
                               const std::vector<Attr>& attrs, const std::string& name) {
  node_n(op, 1, inputs, attrs);
  if (!name.empty()) {
    last_node().set_name(name);
    last_node().set_output(0, name + "_output_0");
  }
  return last_node().output(0);
}

std::vector<std::string> GraphBuilder::node_n(const std::string& op, int outputs,
                                              const std::vector<std::string>& inputs,
                                              const std::vector<Attr>& attrs) {
  ::onnx::NodeProto* node = graph().add_node();
  node->set_op_type(op);
  for (const std::string& in : inputs) node->add_input(in);
  for (const Attr& attr : attrs) {
    auto* proto = node->add_attribute();
    proto->set_name(attr.name);
    if (auto* v = std::get_if<int64_t>(&attr.value)) {
      proto->set_type(::onnx::AttributeProto::INT);
      proto->set_i(*v);
    } else if (auto* f = std::get_if<double>(&attr.value)) {
      proto->set_type(::onnx::AttributeProto::FLOAT);
      proto->set_f(static_cast<float>(*f));
    } else if (auto* s = std::get_if<std::string>(&attr.value)) {
      proto->set_type(::onnx::AttributeProto::STRING);
      proto->set_s(*s);
    } else {
      proto->set_type(::onnx::AttributeProto::INTS);
      for (int64_t v64 : std::get<std::vector<int64_t>>(attr.value)) proto->add_ints(v64);
    }
  }
  std::vector<std::string> names;
  for (int i = 0; i < outputs; i++) {
    names.push_back(fresh(op));
    node->add_output(names.back());
  }
  return names;
}

void GraphBuilder::output(const std::string& value) {
  auto* info = graph().add_output();
  info->set_name(value);
  info->mutable_type()->mutable_tensor_type()->set_elem_type(float_type());
}

void GraphBuilder::identity(const std::string& from, const std::string& to) {
  node("Identity", {from});
  last_node().set_output(0, to);
}

std::string GraphBuilder::bytes() const { return model_.SerializeAsString(); }

void set_metadata(google::protobuf::Message* message, int field, const std::string& key,
                  const std::string& value) {
  ::onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  *message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(field) =
      entry.SerializeAsString();
}

Imported import_file(const std::string& path, const frontend::ImportOptions& options) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  Imported result;
  result.model = frontend::import_onnx(path, options, diagnostics);
  result.messages = diagnostics.render(support::Diagnostics::Format::kHuman);
  result.errors = diagnostics.error_count();
  return result;
}

Imported import_bytes(const std::string& bytes, const frontend::ImportOptions& options) {
  TempFolder folder;
  return import_file(folder.write("model.onnx", bytes), options);
}

Imported import_graph(const GraphBuilder& graph, const frontend::ImportOptions& options) {
  return import_bytes(graph.bytes(), options);
}

int count_ops(const ir::Model& model, const std::string& kind) {
  return static_cast<int>(std::count_if(model.ops.begin(), model.ops.end(),
                                        [&](const ir::Op& op) { return op.kind == kind; }));
}

const ir::Op& find_op(const ir::Model& model, const std::string& kind) {
  for (const ir::Op& op : model.ops) {
    if (op.kind == kind) return op;
  }
  throw std::runtime_error("the model has no " + kind + ":\n" + to_string(model));
}

}  // namespace piper::test
