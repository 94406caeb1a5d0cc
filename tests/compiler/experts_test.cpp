// Mixtures of experts under strategies: equal numbers however the batch is cut and wherever the stages are, with idle
// and with crowded experts; and what is refused.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/compiler/bench.h"

using namespace piper;
using p1::Result;
using test::GraphBuilder;
using testing::Bench;
using testing::data_parallel;
using testing::waves;

namespace {

constexpr int64_t kSamples = 36, kTokens = 4, kWidth = 6, kHidden = 5, kExperts = 4, kOut = 3;
using Ints = std::vector<int64_t>;

enum class Form { kPicked, kPadded, kPaddedFlat };

// A linear layer, experts with a way around them, a linear layer.
struct Network {
  GraphBuilder g{17};
  Form form;
  bool disguised;  // operations that change nothing hide the form from the importer

  // `favour` is added to the router's scores.
  Network(Form how, int64_t choices, const std::vector<double>& favour, int64_t capacity = 0, bool disguise = false)
      : form(how), disguised(disguise) {
    const std::string x = g.input("x", {"batch", kTokens, kWidth});
    const std::string h = linear("layers.0.fc", x, kWidth, kWidth);
    const std::string tokens = how == Form::kPadded ? h : reshape(h, {-1, kWidth});
    std::string scores = linear("layers.1.gate", tokens, kWidth, kExperts);
    scores = g.node("Add", {scores, g.floats("layers.1.gate.favour", {kExperts}, favour)}, {}, "/layers.1/gate/Add");
    const std::string chance = g.node("Softmax", {scores}, {}, "/layers.1/gate/Softmax");
    const auto top = g.node_n("TopK", 2, {chance, g.shape({choices})});
    g.last_node().set_name("/layers.1/gate/TopK");
    const std::string y =
        how == Form::kPicked ? picked(tokens, top[0], top[1], choices) : padded(tokens, top[0], top[1], capacity);
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
    std::string experts = reshape(index, {-1});
    if (disguised) experts = g.node("Add", {experts, g.ints("nothing", {}, {0})});
    const std::string each = g.node("Expand", {g.node("Unsqueeze", {x, g.shape({1})}), g.shape({1, choices, 1})});
    const std::string up = product("up", reshape(each, {-1, 1, kWidth}), experts, kWidth, kHidden);
    const std::string down = product("down", g.node("Tanh", {up}, {}, "/layers.1/up/Tanh"), experts, kHidden, kWidth);
    const std::string weighted =
        g.node("Mul", {reshape(down, {-1, choices, kWidth}), g.node("Unsqueeze", {gates, g.shape({2})})});
    return g.node("ReduceSum", {weighted, g.shape({1})}, {{"keepdims", 0}}, "/layers.1/down/ReduceSum");
  }
  std::string product(const std::string& name, const std::string& x, const std::string& experts, int64_t in,
                      int64_t out) {
    const std::string w = g.node("Gather", {g.weight("layers.1." + name, {kExperts, in, out}), experts});
    return g.node("MatMul", {x, w}, {}, "/layers.1/" + name + "/MatMul");
  }

  std::string padded(const std::string& x, const std::string& gates, const std::string& index, int64_t capacity) {
    const auto rows = g.node_n("MoEDispatch", 2, {x, index}, {{"num_experts", kExperts}, {"capacity", capacity}});
    g.last_node().set_domain("piper");
    g.last_node().set_name("/layers.1/up/MoEDispatch");
    auto* opset = g.proto().add_opset_import();
    opset->set_domain("piper");
    opset->set_version(1);
    const auto stack = [&](const std::string& name, int64_t in, int64_t out) {
      const std::string w = g.weight("layers.1." + name, {kExperts, in, out});
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

Bench bench_of(const Network& network) {
  return Bench(network.g, {{"x", {kSamples, kTokens, kWidth}, waves(kSamples * kTokens * kWidth, 1)},
                           {"t", {kSamples, kTokens, kOut}, waves(kSamples * kTokens * kOut, 2)}});
}

void check_equal(const Result& ours, const Result& theirs) {
  REQUIRE(ours.error == "");
  REQUIRE(theirs.error == "");
  const p1::Difference d = p1::compare(ours, theirs);
  INFO("largest difference in " << d.worst);
  CHECK(d.loss < 1e-5);
  CHECK(d.norm < 1e-5);
  CHECK(d.gradients < 1e-5);
  CHECK(d.weights < 1e-5);
}

// Two stages, the second of which starts at `second`.
std::string pipeline(const std::string& second, int dp, int microbatches) {
  return fmt::format(
      "use pipeline\nmesh dev[pp = 2, dp = {0}]\n"
      "tag stage = 1 where {1}\ntag stage = 0 where not ({1})\n"
      "for s in 0..2 {{ place all(stage = s) on dev[pp = s] }}\nreplicate all() over dp\nsplit all() into {2} as mb\n"
      "for r in 0..2 {{ order pipeline.one_f_one_b(r, 2, {2}) }}\n",
      dp, second, microbatches);
}
constexpr const char* kAfter = "path \"layers.2.**\"";
constexpr const char* kInside = "path \"layers.2.**\" or path \"layers.1.down\" or path \"layers.1\"";

bool all_zero(const std::vector<double>& values, size_t begin, size_t end) {
  return std::all_of(values.begin() + static_cast<std::ptrdiff_t>(begin),
                     values.begin() + static_cast<std::ptrdiff_t>(end), [](double v) { return v == 0; });
}

}  // namespace

TEST_CASE("experts give equal numbers under every cut of the batch") {
  const int64_t choices = GENERATE(1, 2);
  const Form form = GENERATE(Form::kPicked, Form::kPadded);
  const Bench bench = bench_of(Network(form, choices, {0, 0, 0, 0}, form == Form::kPadded ? 2 : 0));
  const Result reference = bench.run(bench.strategy("", 11, "clip_norm 0.5"));
  for (const std::string& text :
       {data_parallel(1, 3), data_parallel(2, 1), data_parallel(2, 3), data_parallel(4, 2), pipeline(kAfter, 1, 4),
        pipeline(kAfter, 2, 3), pipeline(kInside, 1, 3), pipeline(kInside, 2, 2)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 11, "clip_norm 0.5")), reference);
  }
  check_equal(bench.run(bench.strategy(pipeline(kInside, 2, 2), 11, "clip_norm 0.5"), 3, true), reference);
  // The second stage got the places of the rows and their numbers from the first.
  std::set<std::string> sent;
  for (const plan::Program& program : bench.compile(bench.strategy(pipeline(kInside, 2, 2), 11, "")).programs) {
    for (const plan::Instruction& instruction : program.instructions) {
      if (instruction.opcode == plan::Opcode::kSend && instruction.tensor.find("MoERoute") != std::string::npos)
        sent.insert(instruction.tensor);
    }
  }
  CHECK(sent.size() == 2);
}

TEST_CASE("a form that is found trains like the graph as it was") {
  const int64_t choices = GENERATE(1, 2);
  const Form form = GENERATE(Form::kPicked, Form::kPadded);
  const int64_t capacity = form == Form::kPadded ? 2 : 0;
  const Bench found = bench_of(Network(form, choices, {0, 0, 0, 0}, capacity)),
              hidden = bench_of(Network(form, choices, {0, 0, 0, 0}, capacity, true));
  const auto products = [](const Bench& bench) {
    int count = 0;
    for (const plan::Chunk& chunk : bench.compile(bench.strategy("", 8, "")).chunks) {
      for (const plan::KernelCall& call : chunk.variants[0].calls) count += call.op == "GroupedLinear";
    }
    return count;
  };
  CHECK(products(found) == 4);  // two, and two for the gradients of their rows
  CHECK(products(hidden) == 0);
  check_equal(found.run(found.strategy("", 11, "clip_norm 0.5")), hidden.run(hidden.strategy("", 11, "clip_norm 0.5")));
}

TEST_CASE("an expert without tokens has no gradient, and one with all of them has all of it") {
  const bool crowded = GENERATE(false, true);
  const Bench bench = bench_of(Network(Form::kPicked, crowded ? 1 : 2,
                                       crowded ? std::vector<double>{0, 50, 0, 0} : std::vector<double>{0, 0, -50, 0}));
  const Result reference = bench.run(bench.strategy("", 11, ""));
  REQUIRE(reference.error == "");
  const size_t each = kWidth * kHidden;
  for (const char* name : {"layers.1.up", "layers.1.down"}) {
    for (size_t e = 0; e < kExperts; e++) {
      INFO(name << " of expert " << e);
      CHECK(all_zero(reference.gradients.at(name), e * each, (e + 1) * each) == (crowded ? e != 1 : e == 2));
    }
  }
  for (const std::string& text : {data_parallel(2, 3), data_parallel(4, 2), pipeline(kInside, 2, 2)}) {
    INFO(text);
    check_equal(bench.run(bench.strategy(text, 11, "")), reference);
  }
}

TEST_CASE("a capacity over several samples forbids cutting the batch") {
  const Bench bench = bench_of(Network(Form::kPaddedFlat, 2, {0, 0, 0, 0}, 16));
  CHECK(bench.run(bench.strategy("", 11, "")).error == "");
  for (const std::string& text : {data_parallel(1, 2), data_parallel(2, 1)}) {
    const std::string messages = bench.messages(bench.strategy(text, 11, ""));
    INFO(messages);
    CHECK(messages.find("error[E0507]") != std::string::npos);
    CHECK(messages.find("MoERoute") != std::string::npos);
  }
}
