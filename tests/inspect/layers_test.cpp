// Where models are cut.
#include "inspect/layers.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "tests/frontend/onnx/graph_builder.h"

using namespace piper;

namespace {

// A chain of one product in each of the modules.
struct Chain {
  test::GraphBuilder g;
  std::string x;
  std::set<std::string> weights;
  int made = 0;
  Chain() { x = g.input("x", {"batch", 4}); }
  Chain& add(const std::string& path) {
    if (weights.insert(path).second) g.weight(path + ".weight", {4, 4});
    x = g.node("Tanh",
               {g.node("MatMul", {x, path + ".weight"}, {}, fmt::format("/{}/MatMul_{}", slashes(path), made++))}, {},
               fmt::format("/{}/Tanh_{}", slashes(path), made++));
    return *this;
  }
  // "a.layers.0" as TorchScript writes it: "a/layers.0".
  static std::string slashes(const std::string& path) {
    std::string out;
    for (size_t i = 0; i < path.size(); i++) {
      const bool number = i + 1 < path.size() && path[i + 1] >= '0' && path[i + 1] <= '9';
      out += path[i] == '.' && !number ? '/' : path[i];
    }
    return out;
  }
  std::string rules(int64_t stages) {
    g.output(x);
    const auto imported = test::import_graph(g);
    INFO(imported.messages);
    REQUIRE(imported.model);
    const inspect::Module root = inspect::module_tree(*imported.model, {}, true);
    const inspect::Layers layers = inspect::find_layers(*imported.model, root, stages);
    std::string text;
    for (const inspect::LayerRule& rule : layers.rules) text += fmt::format("{}={} ", rule.glob(), rule.value());
    return text + fmt::format("n={}", layers.count);
  }
};

}  // namespace

TEST_CASE("a list of modules is one rule", "[inspect]") {
  Chain c;
  c.add("stem");
  for (int i = 0; i < 4; i++) c.add(fmt::format("model.layers.{}", i));
  CHECK(c.add("head").rules(2) == "model.layers.{i}.**=i n=4");
}

TEST_CASE("several lists follow each other", "[inspect]") {
  Chain c;
  for (int i = 0; i < 3; i++) c.add(fmt::format("encoder.layers.{}", i));
  for (int i = 0; i < 2; i++) c.add(fmt::format("decoder.layers.{}", i));
  CHECK(c.rules(2) == "encoder.layers.{i}.**=i decoder.layers.{i}.**=3 + i n=5");
}

TEST_CASE("too few items for the stages: the lists in them", "[inspect]") {
  Chain c;
  for (int i = 0; i < 2; i++) {
    for (int j = 0; j < 3; j++) c.add(fmt::format("layers.{}.blocks.{}", i, j));
  }
  Chain same = c;
  CHECK(c.rules(2) == "layers.{i}.**=i n=2");
  CHECK(same.rules(4) == "layers.0.blocks.{i}.**=i layers.1.blocks.{i}.**=3 + i n=6");
}

TEST_CASE("a model without lists is cut between its modules", "[inspect]") {
  Chain c;
  for (const char* name : {"stem", "body", "neck", "head"}) c.add(fmt::format("net.{}", name));
  CHECK(c.rules(2) == "net.stem.**=0 net.body.**=1 net.neck.**=2 net.head.**=3 n=4");
}

TEST_CASE("a small list at the end of a model is not where it is cut", "[inspect]") {
  Chain c;
  for (const char* name : {"a", "b", "c"}) c.add(name);
  for (int i = 0; i < 2; i++) c.add(fmt::format("head.{}", i));
  CHECK(c.rules(2) == "a.**=0 b.**=1 c.**=2 head.{i}.**=3 + i n=5");
}

TEST_CASE("modules that call each other back and forth cannot be cut", "[inspect]") {
  Chain c;
  for (int i : {1, 0, 1}) c.add(fmt::format("layers.{}", i));
  CHECK(c.rules(2) == "n=0");
}
