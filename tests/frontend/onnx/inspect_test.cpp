// The text of `inspect`, against a file that PIPER_UPDATE_GOLDEN=1 writes again.

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "frontend/onnx/inspect.h"
#include "tests/frontend/onnx/graph_builder.h"

namespace {

void check_golden(const std::string& path, const std::string& text) {
  if (std::getenv("PIPER_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  REQUIRE(file.good());
  std::stringstream golden;
  golden << file.rdbuf();
  CHECK(text == golden.str());
}

}  // namespace

TEST_CASE("inspect shows modules, parameters and totals", "[inspect]") {
  const auto imported = piper::test::import_file("models/mlp/mlp.onnx");
  REQUIRE(imported.model);
  check_golden("tests/frontend/onnx/golden/mlp.inspect.txt",
               piper::frontend::inspect_text(*imported.model));
  check_golden("tests/frontend/onnx/golden/mlp.inspect.json",
               piper::frontend::inspect_json(*imported.model));
}

TEST_CASE("inspect says what a folded weight is stored as", "[inspect]") {
  piper::test::GraphBuilder g;
  const std::string x = g.input("x", {"batch", 4});
  g.output(g.node("MatMul", {x, g.weight("onnx::MatMul_12", {4, 6})}, {}, "/up/MatMul"));
  const auto imported = piper::test::import_graph(g);
  REQUIRE(imported.model);
  const std::string text = piper::frontend::inspect_text(*imported.model);
  INFO(text);
  CHECK(text.find("onnx::MatMul_12, transposed") != std::string::npos);
}
