// What models are taken to minimise.
#include "inspect/loss_guess.h"

#include <catch2/catch.hpp>

#include "tests/frontend/onnx/graph_builder.h"

using namespace piper;

namespace {

std::string guess(const test::Imported& imported) {
  INFO(imported.messages);
  REQUIRE(imported.model);
  const inspect::LossGuess g = inspect::guess_loss(*imported.model);
  return g.found ? inspect::loss_text(g.term) : g.problem;
}

}  // namespace

TEST_CASE("the loss of shipped models", "[inspect]") {
  const std::string lm = "cross_entropy(logits = output \"logits\", target = input \"labels\", ignore_index = -100)";
  CHECK(guess(test::import_file("models/gpt_tiny/gpt_tiny.onnx")) == lm);
  CHECK(guess(test::import_file("models/bert_tiny/bert_tiny.dynamo.onnx")) == lm);
  CHECK(guess(test::import_file("models/vit_tiny/vit_tiny.onnx")) ==
        "cross_entropy(logits = output \"logits\", target = input \"label\", ignore_index = -100)");
  CHECK(guess(test::import_file("models/mlp/mlp.onnx")) ==
        "mse(prediction = output \"prediction\", target = input \"target\")");
  CHECK(guess(test::import_file("models/own_loss/own_loss.onnx")) == "mean(output \"loss\")");
}

TEST_CASE("an output without a telling name: the vocabulary says that it is scores", "[inspect]") {
  test::GraphBuilder g;
  const std::string tokens = g.input("ids", {"batch", 6}, ::onnx::TensorProto::INT64);
  const std::string x = g.node("Gather", {g.weight("wte.weight", {11, 4}), tokens});
  g.output(g.node("MatMul", {x, g.weight("head.weight", {4, 11})}));
  CHECK(guess(test::import_graph(g)).find("cross_entropy(") == 0);
}

TEST_CASE("names of outputs are written as strings of the language", "[inspect]") {
  test::GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.identity(g.node("MatMul", {x, g.weight("a.weight", {4, 5})}), "{\"1\": \\}");
  g.output("{\"1\": \\}");
  CHECK(guess(test::import_graph(g)) == "mse(prediction = output \"{\\\"1\\\": \\\\}\", target = input \"target\")");
}

TEST_CASE("several outputs: the logits are what is trained, and integers are not", "[inspect]") {
  test::GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  const std::string h = g.node("MatMul", {x, g.weight("a.weight", {4, 5})});
  const std::string logits = g.node("MatMul", {h, g.weight("b.weight", {5, 3})});
  g.identity(h, "hidden");
  g.identity(logits, "logits");
  g.output("hidden");
  g.output("logits");
  CHECK(guess(test::import_graph(g)) ==
        "cross_entropy(logits = output \"logits\", target = input \"label\", ignore_index = -100)");
}

TEST_CASE("labels in the graph: a class for each row, whatever dim holds the classes", "[inspect]") {
  test::GraphBuilder g;
  const std::string x = g.input("x", {"batch", 3, 8});
  g.input("labels", {"batch", 8}, ::onnx::TensorProto::INT64);
  g.output(g.node("Relu", {x}));
  CHECK(guess(test::import_graph(g)).find("cross_entropy(") == 0);
}

TEST_CASE("integer outputs alone are nothing to minimise", "[inspect]") {
  test::GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("ArgMax", {g.node("MatMul", {x, g.weight("a.weight", {4, 5})})}, {{"axis", 1}, {"keepdims", 0}}));
  const auto imported = test::import_graph(g);
  if (imported.model)
    CHECK(guess(imported).find("no output of the model has floats for each sample in dim 0") == 0);
  else
    CHECK(imported.has("E0402"));
}
