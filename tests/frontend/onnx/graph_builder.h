// Small ONNX models for tests, written node by node.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "frontend/onnx/import.h"
#include "frontend/onnx/proto.h"
#include "tests/temp_folder.h"

namespace piper::test {

using Dim = std::variant<int64_t, std::string>;  // a number or a symbol; "?" is neither

class GraphBuilder {
 public:
  explicit GraphBuilder(int opset = 17, int ir_version = 8);
  // Floats are f32, or f64 after this.
  GraphBuilder& use_f64();

  // Each returns the name of what it adds.
  std::string input(const std::string& name, const std::vector<Dim>& dims, int type = 0);
  // Random normal values from a seed made of the name.
  std::string weight(const std::string& name, const std::vector<int64_t>& dims, double scale = 0.5);
  std::string floats(const std::string& name, const std::vector<int64_t>& dims,
                     const std::vector<double>& values);
  std::string ints(const std::string& name, const std::vector<int64_t>& dims,
                   const std::vector<int64_t>& values);
  std::string bools(const std::string& name, const std::vector<int64_t>& dims,
                    const std::vector<int>& values);
  std::string scalar(double value);                     // a Constant node
  std::string shape(const std::vector<int64_t>& dims);  // a Constant node of int64[n]

  struct Attr {
    Attr(const char* n, int v) : name(n), value(int64_t{v}) {}
    Attr(const char* n, int64_t v) : name(n), value(v) {}
    Attr(const char* n, double v) : name(n), value(v) {}
    Attr(const char* n, const char* v) : name(n), value(std::string(v)) {}
    Attr(const char* n, std::vector<int64_t> v) : name(n), value(std::move(v)) {}
    std::string name;
    std::variant<int64_t, double, std::string, std::vector<int64_t>> value;
  };
  // One output; its name follows from the op unless `name` is given, which then is the node's name.
  std::string node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::vector<Attr>& attrs = {}, const std::string& name = "");
  std::vector<std::string> node_n(const std::string& op, int outputs,
                                  const std::vector<std::string>& inputs,
                                  const std::vector<Attr>& attrs = {});
  void output(const std::string& value);
  // Makes a Constant node's value under a name of the caller's choice.
  void identity(const std::string& from, const std::string& to);

  ::onnx::ModelProto& proto() { return model_; }
  ::onnx::GraphProto& graph() { return *model_.mutable_graph(); }
  ::onnx::NodeProto& last_node() { return *graph().mutable_node()->rbegin(); }
  std::string bytes() const;

 private:
  int float_type() const;
  std::string fresh(const std::string& base);
  ::onnx::ModelProto model_;
  bool f64_ = false;
  int next_ = 0;
};

// Sets metadata that the installed schema does not know: an entry of `field` in `message`.
void set_metadata(google::protobuf::Message* message, int field, const std::string& key,
                  const std::string& value);

struct Imported {
  std::optional<ir::Model> model;
  std::string messages;  // rendered, short format
  int errors = 0;
  bool has(const std::string& code) const { return messages.find(code) != std::string::npos; }
};
Imported import_bytes(const std::string& bytes, const frontend::ImportOptions& options = {});
Imported import_file(const std::string& path, const frontend::ImportOptions& options = {});
Imported import_graph(const GraphBuilder& graph, const frontend::ImportOptions& options = {});

// How many ops of a kind a model has.
int count_ops(const ir::Model& model, const std::string& kind);
// The first op of a kind; the test fails when there is none.
const ir::Op& find_op(const ir::Model& model, const std::string& kind);

}  // namespace piper::test
