// Which initializers are parameters, under what names; and the module paths of ops.

#include <catch2/catch.hpp>

#include "frontend/onnx/initializer_reader.h"
#include "tests/frontend/onnx/run_model.h"

namespace {

using namespace piper;
using test::GraphBuilder;

const ir::Parameter* find(const ir::Model& model, const std::string& name) {
  for (const ir::Parameter& param : model.params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

ir::Model import(const GraphBuilder& g, bool canonicalise = true) {
  frontend::ImportOptions options;
  options.canonicalise = canonicalise;
  test::Imported imported = test::import_graph(g, options);
  INFO(imported.messages);
  REQUIRE(imported.model);
  return std::move(*imported.model);
}

void set_kind(GraphBuilder& g, const std::string& name, const std::string& kind) {
  auto* info = g.graph().add_value_info();
  info->set_name(name);
  test::set_metadata(info, frontend::kValueInfoMetadata,
                     "pkg.torch.export.graph_signature.InputSpec.kind", kind);
}

void set_scopes(GraphBuilder& g, const std::string& list) {
  test::set_metadata(&g.last_node(), frontend::kNodeMetadata, "pkg.torch.onnx.name_scopes", list);
}

}  // namespace

TEST_CASE("floats that a gradient reaches are parameters", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  std::string y = g.node("Mul", {x, g.weight("block.scale", {4})});
  y = g.node("Mul", {y, g.weight("rotary.inv_freq", {4})});
  y = g.node("Mul", {y, g.weight("onnx::Mul_12", {4})});
  y = g.node("Mul", {y, g.weight("c_lifted_tensor_0", {4})});
  const std::string keep = g.bools("block.bias", {4}, {1, 0, 1, 1});
  y = g.node("Where", {keep, y, g.scalar(0)});
  const std::string compared = g.node("Greater", {x, g.weight("block.threshold", {4})});
  g.output(g.node("Where", {compared, y, x}));
  const ir::Model model = import(g);
  REQUIRE(find(model, "block.scale"));
  CHECK(find(model, "block.scale")->trainable);
  // A named float buffer stays a value of the file that is not trained; what has no name is a
  // constant.
  REQUIRE(find(model, "rotary.inv_freq"));
  CHECK(find(model, "rotary.inv_freq")->is_buffer);
  CHECK(!find(model, "rotary.inv_freq")->trainable);
  CHECK(!find(model, "onnx::Mul_12"));
  CHECK(!find(model, "c_lifted_tensor_0"));
  CHECK(!find(model, "block.bias"));
  CHECK(!find(model, "block.threshold"));  // no gradient reaches it
}

TEST_CASE("the exporter's metadata is right about kinds", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  std::string y = g.node("Mul", {x, g.weight("a.inv_freq", {4})});
  y = g.node("Mul", {y, g.weight("a.weight", {4})});
  g.output(g.node("Mul", {y, g.weight("a.other", {4})}));
  set_kind(g, "a.inv_freq", "PARAMETER");
  set_kind(g, "a.weight", "BUFFER");
  set_kind(g, "a.other", "CONSTANT_TENSOR");
  const ir::Model model = import(g);
  CHECK(find(model, "a.inv_freq")->trainable);
  CHECK(find(model, "a.weight")->is_buffer);
  CHECK(!find(model, "a.other"));
}

TEST_CASE("one initializer read twice is one parameter", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4}), w = g.weight("fc.weight", {4, 4});
  g.output(g.node("MatMul", {g.node("MatMul", {x, w}), g.node("Transpose", {w})}));
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 1);
  CHECK(model.ops.size() == 2);
  CHECK(model.ops[0].inputs[1] == model.ops[1].inputs[1]);
  CHECK(model.ops[0].attrs.i("trans_w") == 0);
  CHECK(model.ops[1].attrs.i("trans_w") == 1);
}

TEST_CASE("a de-duplicated twin gets its own parameter back", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4}), w = g.weight("layers.0.norm.weight", {4});
  g.identity(w, "layers.1.norm.weight");
  g.identity(w, "alias_5");  // no parameter's name: the same weight
  std::string y = g.node("Mul", {x, w});
  y = g.node("Mul", {y, "layers.1.norm.weight"});
  g.output(g.node("Mul", {y, "alias_5"}));
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 2);
  CHECK(find(model, "layers.0.norm.weight")->initializer == "layers.0.norm.weight");
  CHECK(find(model, "layers.1.norm.weight")->initializer == "layers.0.norm.weight");
  CHECK(model.ops[0].inputs[1] == model.ops[2].inputs[1]);
}

TEST_CASE("a folded weight gets its name from the module that reads it", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("MatMul", {x, g.weight("onnx::MatMul_12", {4, 6})}, {},
                  "/model/layers.0/mlp/up_proj/MatMul"));
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 1);
  CHECK(model.params[0].name == "model.layers.0.mlp.up_proj.weight");
  CHECK(model.params[0].initializer == "onnx::MatMul_12");
  CHECK(model.params[0].transposed);
  CHECK(model.params[0].type.shape == ir::Shape{4, 6});
}

TEST_CASE("a folded weight gets its name from the optimizer's note", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("MatMul", {x, g.weight("val_7", {4, 6})}));
  auto* info = g.graph().add_value_info();
  info->set_name("val_7");
  test::set_metadata(info, frontend::kValueInfoMetadata, "pkg.onnxscript.optimizer.folded_from",
                     "['fc.weight']");
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 1);
  CHECK(model.params[0].name == "fc.weight");
  CHECK(model.params[0].transposed);
}

TEST_CASE("twins of a folded weight get the names of their own modules", "[params]") {
  GraphBuilder g;
  std::string y = g.input("x", {"batch", 4});
  const std::string w = g.weight("onnx::MatMul_12", {4, 4});
  g.identity(w, "onnx::MatMul_13");
  y = g.node("MatMul", {y, w}, {}, "/layers.0/fc/MatMul");
  g.output(g.node("MatMul", {y, "onnx::MatMul_13"}, {}, "/layers.1/fc/MatMul"));
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 2);
  CHECK(find(model, "layers.0.fc.weight")->initializer == "onnx::MatMul_12");
  CHECK(find(model, "layers.1.fc.weight")->initializer == "onnx::MatMul_12");
  CHECK(find(model, "layers.1.fc.weight")->transposed);
}

TEST_CASE("a folded matrix is trained even when its name is lost", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("MatMul", {x, g.weight("onnx::MatMul_12", {4, 6})}));
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 1);
  CHECK(model.params[0].name == "onnx::MatMul_12");
  CHECK(model.params[0].trainable);
}

TEST_CASE("a rule with a wildcard passes over what cannot be a parameter", "[params]") {
  GraphBuilder g;
  std::string x = g.input("x", {"batch", 4});
  x = g.node("Add", {x, g.weight("const_fold_opt__1", {4})});
  g.output(g.node("Gather", {x, g.ints("const_fold_opt__2", {2}, {0, 3})}, {{"axis", 1}}));
  frontend::ImportOptions options;
  options.treats = {{"const_fold_opt__*", ir::WeightKind::kParameter, {}}};
  const test::Imported imported = test::import_graph(g, options);
  INFO(imported.messages);
  REQUIRE(imported.model);
  CHECK(find(*imported.model, "const_fold_opt__1"));
  CHECK(!find(*imported.model, "const_fold_opt__2"));
  options.treats = {{"const_fold_opt__2", ir::WeightKind::kParameter, {}}};
  CHECK(test::import_graph(g, options).has("E0304"));
}

TEST_CASE("weights of a layer are trained whatever they are called", "[params]") {
  GraphBuilder g;
  std::string x = g.input("x", {"batch", 2, 5});
  x = g.node("Conv", {x, g.weight("onnx::Conv_12", {3, 2, 1}), g.weight("onnx::Conv_13", {3})}, {},
             "/stem/conv/Conv");
  x = g.node("Conv", {x, g.weight("447", {3, 3, 1})});
  const std::string filter = g.node("Mul", {x, g.weight("448", {1, 3, 1})});
  g.output(filter);
  const ir::Model model = import(g);
  CHECK(model.params.size() == 3);
  REQUIRE(find(model, "stem.conv.weight"));
  CHECK(find(model, "stem.conv.weight")->initializer == "onnx::Conv_12");
  CHECK(!find(model, "stem.conv.weight")->transposed);
  CHECK(find(model, "stem.conv.bias"));
  CHECK(find(model, "447"));
}

TEST_CASE("convolutions that took a batch normalisation in are a warning", "[params]") {
  GraphBuilder g;
  std::string x = g.input("x", {"batch", 2, 5});
  x = g.node("Conv", {x, g.weight("onnx::Conv_12", {3, 2, 1}), g.weight("onnx::Conv_13", {3})}, {},
             "/stem/conv/Conv");
  x = g.node("Conv", {x, g.weight("447", {3, 3, 1})});
  g.output(g.node("Conv", {x, g.weight("head.weight", {3, 3, 1})}));
  const test::Imported imported = test::import_graph(g);
  INFO(imported.messages);
  CHECK(imported.model);
  CHECK(imported.has("W0403"));
  CHECK(imported.has("2 convolutions have weights with made-up names, the first is `onnx::Conv_12`"));
  CHECK(imported.has("/stem/conv/Conv"));
}

TEST_CASE("weights that are Constant nodes are parameters", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 2});
  const auto constant = [&](const std::string& name, const std::vector<double>& values,
                            const std::vector<int64_t>& dims) {
    g.floats("moved", dims, values);
    auto* tensors = g.graph().mutable_initializer();
    g.node("Constant", {});
    auto& node = g.last_node();
    node.set_output(0, name);
    auto* attribute = node.add_attribute();
    attribute->set_name("value");
    attribute->set_type(::onnx::AttributeProto::TENSOR);
    *attribute->mutable_t() = tensors->Get(tensors->size() - 1);
    tensors->RemoveLast();
    return name;
  };
  std::string y = g.node("MatMul", {x, constant("linear_0.w_0", {1, 2, 3, 4}, {2, 2})});
  y = g.node("Mul", {y, constant("/model/Constant_output_0", {1, 2}, {2})});
  g.output(g.node("Add", {y, constant("epsilon", {0.5}, {1})}));
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 1);
  CHECK(model.params[0].name == "linear_0.w_0");
  GraphBuilder traced = g;  // PyTorch's parameters are initializers
  traced.proto().set_producer_name("pytorch");
  CHECK(import(traced).params.empty());
  CHECK(model.params[0].initializer == "linear_0.w_0");
  const test::TempFolder folder;
  auto reader = frontend::InitializerReader::open(folder.write("model.onnx", g.bytes()));
  REQUIRE(reader);
  auto weight = reader->find("linear_0.w_0");
  REQUIRE(weight);
  CHECK(weight->dims == std::vector<int64_t>{2, 2});
  CHECK(reinterpret_cast<const float*>(weight->data)[2] == 3);
}

TEST_CASE("a folded copy of a shared weight is the shared weight again", "[params]") {
  GraphBuilder g;
  const std::string ids = g.input("ids", {"batch"}, ::onnx::TensorProto::INT64);
  const std::string x = g.node("Gather", {g.weight("lm_head.weight", {6, 4}), ids});
  g.output(g.node("MatMul", {x, g.weight("val_7", {4, 6})}));
  set_kind(g, "lm_head.weight", "PARAMETER");
  auto* info = g.graph().add_value_info();
  info->set_name("val_7");
  test::set_metadata(info, frontend::kValueInfoMetadata, "pkg.onnxscript.optimizer.folded_from",
                     "['lm_head.weight']");
  const ir::Model model = import(g);
  REQUIRE(model.params.size() == 1);
  CHECK(test::count_ops(model, "Linear") == 1);
  CHECK(test::find_op(model, "Linear").attrs.i("trans_w") == 1);
}

TEST_CASE("values that torch.export computed are no parameters, whatever they are called",
          "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string y = g.node("Mul", {x, g.weight("a.weight", {4})});
  g.output(g.node("Mul", {y, g.weight("cos", {1, 4})}));
  set_kind(g, "a.weight", "PARAMETER");
  const ir::Model model = import(g);
  CHECK(model.params.size() == 1);
  CHECK(model.constants.size() == 1);
}

TEST_CASE("a constant that may be a folded parameter is a warning", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("Add", {x, g.weight("onnx::Add_213", {1, 4})}, {}, "/transformer/Add"));
  const test::Imported imported = test::import_graph(g);
  CHECK(imported.model);
  CHECK(imported.errors == 0);
  CHECK(imported.has("W0402"));
  CHECK(imported.has("/transformer/Add"));
}

TEST_CASE("a file without weights has parameters among its inputs", "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4}), w = g.input("fc.weight", {4, 6});
  g.output(g.node("MatMul", {x, w}));
  test::set_metadata(g.graph().mutable_input(1), frontend::kValueInfoMetadata,
                     "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER");
  const ir::Model model = import(g);
  CHECK(model.inputs.size() == 1);
  REQUIRE(model.params.size() == 1);
  CHECK(model.params[0].name == "fc.weight");
  CHECK(model.params[0].initializer.empty());
  CHECK(model.params[0].type.shape == ir::Shape{4, 6});
}

TEST_CASE("initializers that old files list as inputs are no data", "[params]") {
  GraphBuilder g(13, 3);
  const std::string x = g.input("x", {"batch", 4});
  const std::string w = g.weight("fc.weight", {4, 6});
  g.input(w, {4, 6});
  g.output(g.node("MatMul", {x, w}));
  const ir::Model model = import(g);
  CHECK(model.inputs.size() == 1);
  CHECK(model.params.size() == 1);
}

TEST_CASE("paths come from scopes, then from names, then from parameters, then from neighbours",
          "[paths]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  std::string y = g.node("Relu", {x}, {}, "node_relu");
  set_scopes(g, "['', 'model', 'model.layers.0', 'model.layers.0.act', 'relu']");
  y = g.node("Sigmoid", {y}, {}, "/model/layers.1/mlp/act/Sigmoid");
  y = g.node("Mul", {y, g.weight("model.layers.2.scale", {4})});
  y = g.node("Tanh", {y});
  y = g.node("Relu", {y}, {}, "/Relu");  // of the root module
  set_scopes(g, "['_empty_nn_module_stack_from_metadata_hook', 'relu_1']");
  g.output(g.node("Erf", {y}));
  const ir::Model model = import(g);
  std::vector<std::string> paths;
  for (const ir::Op& op : model.ops) paths.push_back(op.path);
  CHECK(paths == std::vector<std::string>{"model.layers.0.act", "model.layers.1.mlp.act",
                                          "model.layers.2", "", "", ""});
}

TEST_CASE("an op takes its consumers' path when they agree, else its producer's", "[paths]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string a = g.node("Relu", {x});
  const std::string b = g.node("Sigmoid", {a}, {}, "/block/Sigmoid");
  g.output(g.node("Tanh", {b}));
  const ir::Model model = import(g);
  for (const ir::Op& op : model.ops) CHECK(op.path == "block");
}

TEST_CASE("names of inputs, parameters and outputs are the file's, and all names differ",
          "[params]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string a =
      g.node("Gemm", {x, g.weight("w", {4, 4}), g.weight("b", {4})}, {{"alpha", 0.5}}, "x");
  g.last_node().set_output(0, std::string("a"));
  g.output("a");
  const ir::Model model = import(g);
  CHECK(model.value(model.inputs[0]).name == "x");
  CHECK(model.value(model.outputs[0]).name == "a");
  std::set<std::string> names;
  for (const ir::Value& value : model.values) CHECK(names.insert(value.name).second);
}

TEST_CASE("the strategy's word on a tensor goes before all others", "[params]") {
  GraphBuilder g;
  std::string y = g.node("Mul", {g.input("x", {"batch", 4}), g.weight("block.scale", {4})});
  y = g.node("Mul", {y, g.weight("onnx::Mul_12", {4})});
  g.output(g.node("Add", {y, g.weight("block.shift", {4})}));
  frontend::ImportOptions options;
  options.treats = {{"onnx::Mul_12", ir::WeightKind::kParameter, {}},
                    {"*.scale", ir::WeightKind::kBuffer, {}},
                    {"block.shift", ir::WeightKind::kConstant, {}}};
  test::Imported imported = test::import_graph(g, options);
  INFO(imported.messages);
  REQUIRE(imported.model);
  REQUIRE(find(*imported.model, "onnx::Mul_12"));
  CHECK(find(*imported.model, "onnx::Mul_12")->trainable);
  REQUIRE(find(*imported.model, "block.scale"));
  CHECK(find(*imported.model, "block.scale")->is_buffer);
  CHECK(!find(*imported.model, "block.shift"));

  options.treats = {{"block.scala", ir::WeightKind::kBuffer, {}}};
  imported = test::import_graph(g, options);
  CHECK(imported.messages.find("error[E0512]") != std::string::npos);
  CHECK(imported.messages.find("did you mean `block.scale`?") != std::string::npos);

  options.treats = {{"block.scale", ir::WeightKind::kBuffer, {}}, {"block.*", ir::WeightKind::kParameter, {}}};
  imported = test::import_graph(g, options);
  CHECK(imported.messages.find("error[E0208]: `block.scale` is treated as parameter and as buffer") != std::string::npos);
}
