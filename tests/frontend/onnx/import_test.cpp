// Constants, functions, sequences, branches, optional inputs: what never becomes an op, and what is
// folded.

#include <catch2/catch.hpp>

#include "tests/frontend/onnx/run_model.h"

namespace {

using namespace piper;
using test::GraphBuilder;

ir::Model import(const GraphBuilder& g) {
  test::Imported imported = test::import_graph(g);
  INFO(imported.messages);
  REQUIRE(imported.model);
  return std::move(*imported.model);
}

std::vector<double> first_output(const GraphBuilder& g, std::vector<double> x) {
  test::TempFolder folder;
  const std::string file = folder.write("model.onnx", g.bytes());
  test::Imported imported = test::import_file(file);
  INFO(imported.messages);
  REQUIRE(imported.model);
  ops::Tensor tensor = ops::make_tensor(ir::DType::kF32, {1, static_cast<int64_t>(x.size())});
  for (size_t i = 0; i < x.size(); i++) ops::set_number(tensor, static_cast<int64_t>(i), x[i]);
  const auto outputs = test::run_model(*imported.model, file, {{"x", tensor}}, 1);
  std::vector<double> values;
  for (int64_t i = 0; i < outputs[0].elements(); i++)
    values.push_back(ops::get_number(outputs[0], i));
  return values;
}

}  // namespace

TEST_CASE("constant subgraphs are computed at import", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string positions = g.node("Range", {g.scalar(0), g.scalar(4), g.scalar(1)});
  const std::string table = g.node("Cos", {g.node("Mul", {positions, g.scalar(0.5)})});
  g.output(g.node("Mul", {x, table}));
  const ir::Model model = import(g);
  CHECK(model.ops.size() == 1);
  CHECK(model.constants.size() == 1);
  const std::vector<double> y = first_output(g, {1, 1, 1, 1});
  for (int i = 0; i < 4; i++) CHECK(y[static_cast<size_t>(i)] == Approx(std::cos(0.5 * i)));
}

TEST_CASE("what reaches a parameter is not folded", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("Mul", {x, g.node("Exp", {g.weight("log.scale", {4})})}));
  CHECK(import(g).ops.size() == 2);
}

TEST_CASE("identities, casts to the same type and empty moves leave nothing", "[import]") {
  GraphBuilder g;
  std::string y = g.node("Identity", {g.input("x", {"batch", 4})});
  y = g.node("Cast", {y}, {{"to", 1}});
  y = g.node("Reshape", {y, g.shape({0, 2, 2})});
  y = g.node("Reshape", {y, g.shape({0, 4})});
  y = g.node("Transpose", {g.node("Transpose", {y}, {{"perm", std::vector<int64_t>{1, 0}}})},
             {{"perm", std::vector<int64_t>{1, 0}}});
  y = g.node("Slice", {y, g.shape({0}), g.shape({9}), g.shape({1})});
  g.output(g.node("Relu", {y}));
  CHECK(import(g).ops.size() == 1);
}

TEST_CASE("an output has its own name, also behind an identity", "[import]") {
  GraphBuilder g;
  const std::string y = g.node("Relu", {g.input("x", {"batch", 3})}, {}, "/act/Relu");
  g.identity(y, "logits");
  g.output("logits");
  const ir::Model model = import(g);
  REQUIRE(model.ops.size() == 1);
  CHECK(model.value(model.outputs[0]).name == "logits");
}

TEST_CASE("ops that no output needs are dropped, with their parameters", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.node("Mul", {x, g.weight("unused.weight", {4})});
  g.output(g.node("Relu", {x}));
  const ir::Model model = import(g);
  CHECK(model.ops.size() == 1);
  CHECK(model.params.empty());
}

TEST_CASE("nodes in any order are sorted", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string a = g.node("Relu", {x}), b = g.node("Neg", {a});
  g.output(b);
  g.graph().mutable_node()->SwapElements(0, 1);
  const ir::Model model = import(g);
  REQUIRE(model.ops.size() == 2);
  CHECK(model.ops[0].kind == "Relu");
}

TEST_CASE("constants in all their forms", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 3});
  const std::string one = g.node("Constant", {}, {{"value_float", 2.0}});
  const std::string many = g.node("Constant", {});
  auto* attribute = g.last_node().add_attribute();
  attribute->set_name("value_floats");
  attribute->set_type(::onnx::AttributeProto::FLOATS);
  for (float f : {1.f, 2.f, 3.f}) attribute->add_floats(f);
  const std::string whole =
      g.node("Cast", {g.node("Constant", {}, {{"value_int", 10}})}, {{"to", 1}});
  const std::string list =
      g.node("Cast", {g.node("Constant", {}, {{"value_ints", std::vector<int64_t>{5, 6, 7}}})},
             {{"to", 1}});
  std::string y = g.node("Mul", {x, one});
  y = g.node("Add", {g.node("Add", {y, many}), g.node("Add", {whole, list})});
  g.output(y);
  CHECK(first_output(g, {1, 1, 1}) == std::vector<double>{18, 20, 22});
}

TEST_CASE("ConstantOfShape with its default and with a value", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 3});
  const std::string zeros = g.node("ConstantOfShape", {g.node("Shape", {x})});
  g.output(g.node("Add", {x, zeros}));
  const ir::Model model = import(g);
  CHECK(test::count_ops(model, "Fill") == 1);  // its size follows the batch
  CHECK(first_output(g, {1, 2, 3}) == std::vector<double>{1, 2, 3});
}

TEST_CASE("functions of the model are inlined, with attributes and defaults", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 3});
  g.output(g.node("Shifted", {x}, {{"axis", 1}}, "/block/Shifted"));
  g.last_node().set_domain("local");
  auto* import_local = g.proto().add_opset_import();
  import_local->set_domain("local");
  import_local->set_version(1);
  auto* f = g.proto().add_functions();
  f->set_name("Shifted");
  f->set_domain("local");
  f->add_input(std::string("a"));
  f->add_output(std::string("b"));
  f->add_attribute(std::string("axis"));
  auto* opset = f->add_opset_import();
  opset->set_domain("");
  opset->set_version(17);
  auto add = [&](const char* op, const std::vector<std::string>& in, const std::string& out) {
    auto* node = f->add_node();
    node->set_op_type(op);
    for (const std::string& name : in) node->add_input(name);
    node->add_output(out);
    return node;
  };
  add("Neg", {"a"}, "inner");
  auto* axis = add("Softmax", {"inner"}, "b")->add_attribute();
  axis->set_name("axis");
  axis->set_ref_attr_name("axis");
  axis->set_type(::onnx::AttributeProto::INT);
  const ir::Model model = import(g);
  REQUIRE(model.ops.size() == 2);
  CHECK(model.ops[0].kind == "Neg");
  CHECK(model.ops[1].kind == "Softmax");
  CHECK(model.ops[0].path == "block.Shifted");
}

TEST_CASE("functions of one name are told apart by their overload", "[import]") {
  constexpr int kNodeOverload = 8, kFunctionOverload = 13;
  const auto set = [](::google::protobuf::Message& message, int field, const std::string& text) {
    message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(field)->assign(text);
  };
  GraphBuilder g;
  std::string x = g.input("x", {"batch", 3});
  for (const char* overload : {"second", "first"}) {
    x = g.node("Act", {x});
    g.last_node().set_domain("local");
    set(g.last_node(), kNodeOverload, overload);
  }
  g.output(x);
  for (const auto& [overload, op] : {std::pair("first", "Relu"), std::pair("second", "Neg")}) {
    auto* f = g.proto().add_functions();
    f->set_name("Act");
    f->set_domain("local");
    set(*f, kFunctionOverload, overload);
    f->add_input(std::string("a"));
    f->add_output(std::string("b"));
    auto* node = f->add_node();
    node->set_op_type(op);
    node->add_input(std::string("a"));
    node->add_output(std::string("b"));
  }
  CHECK(first_output(g, {1, -2, 3}) == std::vector<double>{0, 2, 0});
}

TEST_CASE("a function that calls itself is refused", "[import]") {
  GraphBuilder g;
  g.output(g.node("F", {g.input("x", {"batch", 3})}));
  g.last_node().set_domain("local");
  auto* f = g.proto().add_functions();
  f->set_name("F");
  f->set_domain("local");
  f->add_input(std::string("a"));
  f->add_output(std::string("b"));
  auto* node = f->add_node();
  node->set_op_type("F");
  node->set_domain("local");
  node->add_input(std::string("a"));
  node->add_output(std::string("b"));
  const test::Imported imported = test::import_graph(g);
  CHECK(!imported.model);
  CHECK(imported.has("calls itself"));
}

TEST_CASE("sequences of parts become slices", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 6});
  const std::string parts = g.node("SplitToSequence", {x, g.ints("two", {}, {2})}, {{"axis", -1}});
  const std::string last = g.node("SequenceAt", {parts, g.ints("last", {}, {-1})});
  const std::string first = g.node("SequenceAt", {parts, g.ints("first", {}, {0})});
  g.output(g.node("Sub", {last, first}));
  CHECK(import(g).ops.size() == 3);
  CHECK(first_output(g, {1, 2, 3, 4, 5, 7}) == std::vector<double>{4, 5});

  GraphBuilder back;
  const std::string y = back.input("x", {"batch", 6});
  const std::string split =
      back.node("SplitToSequence", {y, back.ints("sizes", {2}, {4, 2})}, {{"axis", 1}});
  back.output(back.node("ConcatFromSequence", {split}, {{"axis", 1}}));
  CHECK(first_output(back, {1, 2, 3, 4, 5, 6}) == std::vector<double>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("splitting the batch is an error", "[import]") {
  GraphBuilder g;
  const std::string parts = g.node("SplitToSequence", {g.input("x", {4, 6})}, {{"axis", 0}});
  g.output(g.node("SequenceAt", {parts, g.node("Constant", {}, {{"value_int", 0}})}));
  const test::Imported imported = test::import_graph(g);
  CHECK(!imported.model);
  CHECK(imported.has("splits the batch"));
}

namespace {

// If over a condition: the identity of x, or its negation from a graph that reads x from outside.
GraphBuilder branch(const std::string& condition, GraphBuilder g) {
  g.node("If", {condition});
  auto& node = g.last_node();
  for (const char* which : {"then_branch", "else_branch"}) {
    auto* attribute = node.add_attribute();
    attribute->set_name(which);
    attribute->set_type(::onnx::AttributeProto::GRAPH);
    auto* graph = attribute->mutable_g();
    auto* inner = graph->add_node();
    inner->set_op_type(std::string(which) == "then_branch" ? "Relu" : "Neg");
    inner->add_input(std::string("x"));
    inner->add_output(std::string(which) + "_out");
    graph->add_output()->set_name(inner->output(0));
  }
  g.output(node.output(0));
  return g;
}

}  // namespace

TEST_CASE("a branch whose condition is known is taken at import", "[import]") {
  const bool yes = GENERATE(false, true);
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 3});
  const std::string rank = g.node("Size", {g.node("Shape", {x})});
  const std::string condition = g.node("Equal", {rank, g.ints("two", {}, {yes ? 2 : 3})});
  const ir::Model model = import(branch(condition, g));
  REQUIRE(model.ops.size() == 1);
  CHECK(model.ops[0].kind == (yes ? "Relu" : "Neg"));
}

TEST_CASE("a branch may read any output of a node, in it and before it", "[import]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::vector<std::string> before = g.node_n("Split", 2, {x}, {{"axis", 1}});
  const std::string condition = g.node("Equal", {g.ints("one", {}, {1}), g.ints("also", {}, {1})});
  g = branch(condition, g);
  for (auto& attribute : *g.last_node().mutable_attribute()) {
    // The second half of the second half, which nothing outside the branch reads.
    auto* inner = attribute.mutable_g()->mutable_node(0);
    auto* split = attribute.mutable_g()->add_node();
    split->set_op_type("Split");
    split->add_input(before[1]);
    split->add_output("first");
    split->add_output("second");
    auto* axis = split->add_attribute();
    axis->set_name("axis");
    axis->set_type(::onnx::AttributeProto::INT);
    axis->set_i(1);
    inner->set_input(0, "second");
    attribute.mutable_g()->mutable_node()->SwapElements(0, 1);
  }
  const ir::Model model = import(g);
  CHECK(model.value(model.outputs[0]).type.shape == ir::Shape{ir::Dim::batch_size(), 1});
}

TEST_CASE("a branch on data is refused", "[import]") {
  GraphBuilder g;
  g.input("x", {"batch", 3});
  const std::string condition = g.input("go", {}, ::onnx::TensorProto::BOOL);
  const test::Imported imported = test::import_graph(branch(condition, g));
  CHECK(!imported.model);
  CHECK(imported.has("depends on data"));
}

TEST_CASE("the hash is of the file's bytes", "[import]") {
  GraphBuilder g;
  g.output(g.node("Relu", {g.input("x", {"batch", 3})}));
  const ir::Model a = import(g), b = import(g);
  CHECK(a.hash == b.hash);
  CHECK(a.hash != 0);
  g.graph().set_name("other");
  CHECK(import(g).hash != a.hash);
  CHECK(a.producer == "test");
}
