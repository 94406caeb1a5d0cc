// A network with experts between two linear layers, for tests of mixtures.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/compiler/bench.h"

namespace piper::testing {

inline constexpr int64_t kSamples = 36, kTokens = 4, kWidth = 6, kHidden = 5, kExperts = 4, kOut = 3;

// kScaled: as kPicked, and all experts share a vector that their hidden values are multiplied by.
enum class Form { kPicked, kScaled, kPadded, kPaddedFlat };

// A linear layer, experts with a way around them, a linear layer.
struct Network {
  using Ints = std::vector<int64_t>;
  test::GraphBuilder g{17};
  Form form;
  int64_t experts;
  bool disguised;  // operations that change nothing hide the form from the importer

  // `favour` is added to the router's scores, a number an expert.
  Network(Form how, int64_t choices, const std::vector<double>& favour, int64_t capacity = 0, bool disguise = false)
      : form(how), experts(static_cast<int64_t>(favour.size())), disguised(disguise) {
    const std::string x = g.input("x", {"batch", kTokens, kWidth});
    const std::string h = linear("layers.0.fc", x, kWidth, kWidth);
    const std::string tokens = how == Form::kPadded ? h : reshape(h, {-1, kWidth});
    std::string scores = linear("layers.1.gate", tokens, kWidth, experts);
    scores = g.node("Add", {scores, g.floats("layers.1.gate.favour", {experts}, favour)}, {}, "/layers.1/gate/Add");
    const std::string chance = g.node("Softmax", {scores}, {}, "/layers.1/gate/Softmax");
    const auto top = g.node_n("TopK", 2, {chance, g.shape({choices})});
    g.last_node().set_name("/layers.1/gate/TopK");
    const std::string y =
        how == Form::kPicked || how == Form::kScaled ? picked(tokens, top[0], top[1], choices) : padded(tokens, top[0], top[1], capacity);
    const std::string sum = g.node("Add", {h, reshape(y, {-1, kTokens, kWidth})}, {}, "/layers.1/Add");
    g.output(linear("layers.2.fc", sum, kWidth, kOut));
  }

  std::string reshape(const std::string& v, const Ints& shape) { return g.node("Reshape", {v, g.shape(shape)}); }
  std::string linear(const std::string& name, const std::string& x, int64_t in, int64_t out) {
    std::string path = "/" + name;
    std::replace(path.begin() + 9, path.end(), '.', '/');
    return g.node("MatMul", {x, g.weight(name + ".weight", {in, out})}, {}, path + "/MatMul");
  }

  std::string picked(const std::string& x, const std::string& gates, const std::string& index, int64_t choices) {
    std::string pairs = reshape(index, {-1});
    if (disguised) pairs = g.node("Add", {pairs, g.ints("nothing", {}, {0})});
    const std::string each = g.node("Expand", {g.node("Unsqueeze", {x, g.shape({1})}), g.shape({1, choices, 1})});
    const std::string up = product("up", reshape(each, {-1, 1, kWidth}), pairs, kWidth, kHidden);
    std::string hidden = g.node("Tanh", {up}, {}, "/layers.1/up/Tanh");
    if (form == Form::kScaled) hidden = g.node("Mul", {hidden, g.weight("layers.1.scale", {kHidden})}, {}, "/layers.1/up/Mul");
    const std::string down = product("down", hidden, pairs, kHidden, kWidth);
    const std::string weighted =
        g.node("Mul", {reshape(down, {-1, choices, kWidth}), g.node("Unsqueeze", {gates, g.shape({2})})});
    return g.node("ReduceSum", {weighted, g.shape({1})}, {{"keepdims", 0}}, "/layers.1/down/ReduceSum");
  }
  std::string product(const std::string& name, const std::string& x, const std::string& index, int64_t in,
                      int64_t out) {
    const std::string w = g.node("Gather", {g.weight("layers.1." + name, {experts, in, out}), index});
    return g.node("MatMul", {x, w}, {}, "/layers.1/" + name + "/MatMul");
  }

  std::string padded(const std::string& x, const std::string& gates, const std::string& index, int64_t capacity) {
    const auto rows = g.node_n("MoEDispatch", 2, {x, index}, {{"num_experts", experts}, {"capacity", capacity}});
    g.last_node().set_domain("piper");
    g.last_node().set_name("/layers.1/up/MoEDispatch");
    auto* opset = g.proto().add_opset_import();
    opset->set_domain("piper");
    opset->set_version(1);
    const auto stack = [&](const std::string& name, int64_t in, int64_t out) {
      const std::string w = g.weight("layers.1." + name, {experts, in, out});
      return form == Form::kPadded ? g.node("Unsqueeze", {w, g.shape({1})}) : w;
    };
    const std::string up = g.node("MatMul", {rows[0], stack("up", kWidth, kHidden)}, {}, "/layers.1/up/MatMul");
    std::string hidden = g.node("Sigmoid", {up});
    if (disguised)
      hidden = g.node("ReduceSum", {g.node("Unsqueeze", {hidden, g.shape({0})}), g.shape({0})}, {{"keepdims", 0}});
    const std::string down = g.node("MatMul", {hidden, stack("down", kHidden, kWidth)}, {}, "/layers.1/down/MatMul");
    const std::string y = g.node("MoECombine", {down, rows[1], gates}, {}, "/layers.1/down/MoECombine");
    g.last_node().set_domain("piper");
    return y;
  }
};

inline Bench bench_of(const Network& network) {
  return Bench(network.g, {{"x", {kSamples, kTokens, kWidth}, waves(kSamples * kTokens * kWidth, 1)},
                           {"t", {kSamples, kTokens, kOut}, waves(kSamples * kTokens * kOut, 2)}});
}

inline void check_equal(const p1::Result& ours, const p1::Result& theirs) {
  REQUIRE(ours.error == "");
  REQUIRE(theirs.error == "");
  const p1::Difference d = p1::compare(ours, theirs);
  INFO("largest difference in " << d.worst);
  CHECK(d.loss < 1e-5);
  CHECK(d.norm < 1e-5);
  CHECK(d.gradients < 1e-5);
  CHECK(d.weights < 1e-5);
}

}  // namespace piper::testing
