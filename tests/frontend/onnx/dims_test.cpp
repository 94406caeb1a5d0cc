// Symbolic dims, the batch, shape arithmetic, and batch sizes that the exporter wrote down.

#include <catch2/catch.hpp>

#include "frontend/onnx/baked_batch.h"
#include "frontend/onnx/dim_expression.h"
#include "tests/frontend/onnx/run_model.h"

namespace {

using namespace piper;
using ir::Dim;
using ir::Shape;
using test::GraphBuilder;

const Shape& output_shape(const ir::Model& model) {
  return model.value(model.outputs[0]).type.shape;
}
const Dim kB = Dim::batch_size();

}  // namespace

TEST_CASE("dim 0 of every input is the batch, by name or by number", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"n", 4}), y = g.input("y", {"m", 4});
  g.output(g.node("Add", {x, y}));
  auto imported = test::import_graph(g);
  REQUIRE(imported.model);
  CHECK(output_shape(*imported.model) == Shape{kB, 4});

  GraphBuilder fixed;
  fixed.output(fixed.node("Relu", {fixed.input("x", {2, 4})}));
  imported = test::import_graph(fixed);
  REQUIRE(imported.model);
  CHECK(output_shape(*imported.model) == Shape{kB, 4});

  frontend::ImportOptions options;
  options.static_batch = true;
  imported = test::import_graph(fixed, options);
  REQUIRE(imported.model);
  CHECK(output_shape(*imported.model) == Shape{2, 4});
}

TEST_CASE("other symbols take the numbers they are bound to", "[dims]") {
  GraphBuilder g;
  g.output(g.node("Relu", {g.input("x", {"batch", "sequence", 4})}));
  frontend::ImportOptions options;
  options.dims["sequence"] = 7;
  const auto imported = test::import_graph(g, options);
  REQUIRE(imported.model);
  CHECK(output_shape(*imported.model) == Shape{kB, 7, 4});
}

TEST_CASE("dims without a size are one error that lists them", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", "sequence", "width"}),
                    y = g.input("y", {"batch", "sequence", "?"});
  g.output(g.node("Add", {x, y}));
  const auto imported = test::import_graph(g);
  CHECK(!imported.model);
  CHECK(imported.errors == 1);
  CHECK(imported.has("E0403"));
  CHECK(imported.has("`sequence` (of `x`, `y`)"));
  CHECK(imported.has("`width` (of `x`)"));
  CHECK(imported.has("dim 2 of `y`"));
  CHECK(imported.has("dim \"y.2\" = 128"));
}

TEST_CASE("a dim without a name is bound by its place", "[dims]") {
  GraphBuilder g;
  g.output(g.node("Relu", {g.input("x", {"batch", "?", 4})}));
  frontend::ImportOptions options;
  options.dims["x.1"] = 7;
  const auto imported = test::import_graph(g, options);
  INFO(imported.messages);
  REQUIRE(imported.model);
  CHECK(output_shape(*imported.model) == Shape{kB, 7, 4});
}

TEST_CASE("shape arithmetic leaves no op behind", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 6, 8});
  const std::string shape = g.node("Shape", {x});
  const std::string batch = g.node("Gather", {shape, g.ints("zero", {}, {0})});
  const std::string width = g.node("Gather", {shape, g.ints("two", {}, {2})});
  const std::string half = g.node("Div", {width, g.ints("heads", {}, {2})});
  auto wide = [&](const std::string& v) { return g.node("Unsqueeze", {v, g.shape({0})}); };
  const std::string target =
      g.node("Concat", {wide(batch), g.shape({6, 2}), wide(half)}, {{"axis", 0}});
  g.output(g.node("Reshape", {x, target}));
  const auto imported = test::import_graph(g);
  INFO(imported.messages);
  REQUIRE(imported.model);
  CHECK(imported.model->ops.size() == 1);
  CHECK(output_shape(*imported.model) == Shape{kB, 6, 2, 4});
}

TEST_CASE("the Where pattern of expand gives the shape it means", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 1, 8});
  const std::string batch = g.node("Slice", {g.node("Shape", {x}), g.shape({0}), g.shape({1})});
  const std::string target = g.node("Concat", {batch, g.shape({3, -1})}, {{"axis", 0}});
  const std::string ones = g.node("ConstantOfShape", {g.node("Shape", {target})});
  auto* value = g.last_node().add_attribute();
  value->set_name("value");
  value->set_type(::onnx::AttributeProto::TENSOR);
  value->mutable_t()->set_data_type(::onnx::TensorProto::INT64);
  value->mutable_t()->add_dims(1);
  value->mutable_t()->add_int64_data(1);
  const std::string minus = g.node("Mul", {ones, g.ints("minus", {}, {-1})});
  const std::string chosen = g.node("Where", {g.node("Equal", {target, minus}), ones, target});
  g.output(g.node("Expand", {x, chosen}));
  const auto imported = test::import_graph(g);
  INFO(imported.messages);
  REQUIRE(imported.model);
  CHECK(imported.model->ops.size() == 1);
  CHECK(output_shape(*imported.model) == Shape{kB, 3, 8});
}

TEST_CASE("a batch size used as data is an error", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string size = g.node("Cast", {g.node("Size", {x})}, {{"to", 1}});
  g.output(g.node("Div", {x, size}));
  const auto imported = test::import_graph(g);
  CHECK(!imported.model);
  CHECK(imported.has("E0405"));
  CHECK(imported.has("depends on the batch size"));
}

TEST_CASE("two dims of a value cannot both follow the batch", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("MatMul", {x, g.node("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0}}})}));
  const auto imported = test::import_graph(g);
  CHECK(!imported.model);
  CHECK(imported.has("two dims"));
}

TEST_CASE("a baked batch in a Reshape becomes B", "[dims][baked]") {
  GraphBuilder g;
  const std::string x = g.input("x", {2, 6, 8});
  const std::string heads = g.node("Reshape", {x, g.shape({2, 6, 2, 4})});
  const std::string merged = g.node("Reshape", {heads, g.shape({12, 8})});
  g.output(g.node("Reshape", {merged, g.shape({2, -1})}));
  const auto imported = test::import_graph(g);
  INFO(imported.messages);
  REQUIRE(imported.model);
  CHECK(output_shape(*imported.model) == Shape{kB, 48});
}

TEST_CASE("where the batch is in a Reshape target", "[dims][baked]") {
  using Target = std::vector<Dim>;
  auto shape = [](const Shape& data, const Target& target, std::optional<int64_t> literal) {
    auto result = frontend::reshape_target(data, target, false, literal);
    return result ? to_string(*result) : result.error().message;
  };
  CHECK(shape({kB, 6, 8}, {4, 6, 8}, 4) == "[B, 6, 8]");
  CHECK(shape({kB, 6, 8}, {24, 8}, 4) == "[6B, 8]");
  CHECK(shape({kB, 6, 8}, {4, 6, 4, 2}, 4) == "[B, 6, 4, 2]");  // the second 4 is no batch
  CHECK(shape({kB, 16}, {4, 4, 4}, 4) == "[B, 4, 4]");
  CHECK(shape({kB, 6, 8}, {-1, 8}, 4) == "[6B, 8]");
  CHECK(shape({kB, 6, 8}, {4, -1}, 4) == "[B, 48]");  // not [4, 12B]
  CHECK(shape({kB, 64}, {-1, 4, 16}, 4) == "[B, 4, 16]");
  CHECK(shape({kB, 6, 8}, {0, 0, -1, 4}, std::nullopt) == "[B, 6, 2, 4]");
  CHECK(shape({kB, 6, 8}, {5, 48}, std::nullopt) == "[B, 48]");  // traced with 5 samples
  CHECK(shape({Dim(0, 6), 8}, {4, 6, 8}, 4) == "[B, 6, 8]");
  CHECK(shape({6, kB, 8}, {24, 8}, 4) == "[6B, 8]");          // merged with a dim before
  CHECK(shape({Dim(0, 6), 8}, {6, 2, 8}, 2) == "[6, B, 8]");  // not [3B, 2, 8]
  CHECK(shape({6, kB, 8}, {6, 4, 2, 4}, 4) == "[6, B, 2, 4]");
  CHECK(shape({6, kB, 8}, {6, 20, 2}, std::nullopt) == "[6, 4B, 2]");
  CHECK(shape({kB, 6, 8}, {7, 7}, std::nullopt).find("cannot be told") != std::string::npos);
  CHECK(shape({kB, 6, 8}, {7, 7}, 4).find("cannot be told") != std::string::npos);
}

TEST_CASE("a baked batch that cannot be found is an error naming the node", "[dims][baked]") {
  GraphBuilder g;
  const std::string x = g.input("x", {4, 6});
  g.output(g.node("Reshape", {x, g.shape({3, 8})}, {}, "/block/Reshape"));
  const auto imported = test::import_graph(g);
  CHECK(!imported.model);
  CHECK(imported.has("E0406"));
  CHECK(imported.has("/block/Reshape"));
}

TEST_CASE("an input with its batch in another dim has it in dim 0 in the data", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string state = g.input("state", {2, "batch", 4});
  const std::string sum = g.node("ReduceSum", {state, g.ints("axes", {1}, {0})}, {{"keepdims", 0}});
  g.output(g.node("Sub", {sum, x}));
  const auto imported = test::import_graph(g);
  INFO(imported.messages);
  REQUIRE(imported.model);
  const ir::Model& model = *imported.model;
  REQUIRE(model.inputs.size() == 2);
  CHECK(model.value(model.inputs[1]).name == "state");
  CHECK(to_string(model.value(model.inputs[1]).type) == "f32[B, 2, 4]");
  CHECK(to_string(model.value(model.outputs[0]).type) == "f32[B, 4]");
  ops::Tensor zeros = ops::make_tensor(ir::DType::kF32, {2, 4});
  ops::Tensor states = ops::make_tensor(ir::DType::kF32, {2, 2, 4});
  for (int i = 0; i < 16; i++) states.as<float>()[i] = static_cast<float>(i);
  const test::TempFolder folder;
  const std::string file = folder.write("model.onnx", g.bytes());
  const auto y = test::run_model(model, file, {{"x", zeros}, {"state", states}}, 2);
  CHECK(ops::get_number(y[0], 0) == 0 + 4);  // sample 0: rows 0..3 and 4..7
  CHECK(ops::get_number(y[0], 7) == 11 + 15);

  GraphBuilder two;
  two.output(two.node("Neg", {two.input("x", {"batch", "batch"})}));
  const auto refused = test::import_graph(two);
  CHECK(!refused.model);
  CHECK(refused.has("E0406"));
  CHECK(refused.has("two of its dims are of the batch size"));
}

TEST_CASE("a constant of the traced batch size next to the batch is an error", "[dims][baked]") {
  GraphBuilder g;
  const std::string x = g.input("x", {4, 6});
  g.output(
      g.node("Add", {x, g.floats("offset", {4, 6}, std::vector<double>(24, 1))}, {}, "/block/Add"));
  const auto imported = test::import_graph(g);
  CHECK(!imported.model);
  CHECK(imported.has("E0406"));
  CHECK(imported.has("/block/Add"));
}

TEST_CASE("a baked batch in an Expand becomes B", "[dims][baked]") {
  GraphBuilder g;
  const std::string x = g.input("x", {4, 1, 6});
  g.output(g.node("Expand", {x, g.shape({4, 3, 6})}));
  const auto imported = test::import_graph(g);
  INFO(imported.messages);
  REQUIRE(imported.model);
  CHECK(output_shape(*imported.model) == Shape{kB, 3, 6});
}

TEST_CASE("a model gives the same rows for every batch size", "[dims]") {
  GraphBuilder g;
  const std::string x = g.input("x", {2, 6});
  const std::string y = g.node("Reshape", {x, g.shape({2, 3, 2})});
  g.output(g.node("Reshape", {g.node("Softmax", {y}), g.shape({-1, 6})}));
  test::TempFolder folder;
  const std::string file = folder.write("model.onnx", g.bytes());
  const auto imported = test::import_file(file);
  INFO(imported.messages);
  REQUIRE(imported.model);
  const auto inputs = test::random_inputs(*imported.model, 5);
  const auto all = test::run_model(*imported.model, file, inputs, 5);
  for (int64_t row = 0; row < 5; row++) {
    ops::Tensor one = ops::make_tensor(ir::DType::kF32, {1, 6});
    for (int64_t i = 0; i < 6; i++)
      ops::set_number(one, i, ops::get_number(inputs.at("x"), row * 6 + i));
    const auto alone = test::run_model(*imported.model, file, {{"x", one}}, 1);
    for (int64_t i = 0; i < 6; i++)
      CHECK(ops::get_number(alone[0], i) == ops::get_number(all[0], row * 6 + i));
  }
}

TEST_CASE("dims computed from others, as torch.export writes them", "[dims]") {
  const auto value = [](const std::string& text) {
    return frontend::evaluate_dim(text, [](const std::string& name) -> std::optional<Dim> {
      if (name == "batch" || name == "s77") return kB;
      if (name == "s0") return Dim(12);
      return std::nullopt;
    });
  };
  CHECK(value("s0").value == Dim(12));
  CHECK(value("s0 + 1").value == Dim(13));
  CHECK(value("2*s0 - 3").value == Dim(21));
  CHECK(value("Max(1, s0//5)").value == Dim(2));
  CHECK(value("-(s0 - 20) % 3").value == Dim(2));
  CHECK(value("3*batch + 2").value == Dim(2, 3));
  CHECK(value("(4*s77)//2").value == Dim(0, 2));
  CHECK(value("s77*s0").value == Dim(0, 12));
  // Not linear in the batch, or no expression at all.
  for (const char* text : {"s77*s77", "s77//2", "s77 % 2", "Max(s77, 2)", "s0**2", "s0 +", "(s0", "", "s0 s0", "9999999999999999999",
                           "s0*9000000000000000000"}) {
    INFO(text);
    CHECK_FALSE(value(text).value.has_value());
  }
  CHECK_FALSE(value(std::string(100000, '(')).understood);
  const auto unbound = value("s3 + s4*s3");
  CHECK(unbound.understood);
  CHECK(unbound.unbound == std::vector<std::string>{"s3", "s4"});
}
