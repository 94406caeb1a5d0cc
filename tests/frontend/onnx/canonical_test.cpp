// Canonical rewrites: what is recognised, that it gives the numbers of the graph as it was, and
// what must not be.

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/frontend/onnx/run_model.h"

namespace {

using namespace piper;
using test::compare_canonical;
using test::count_ops;
using test::GraphBuilder;

constexpr double kHalfRoot = 0.70710678118654752;
constexpr double kTwoOverPiRoot = 0.79788456080286536;

// The rewrite happened `count` times and changed nothing.
ir::Model check_rewritten(const GraphBuilder& g, const std::string& kind, int count = 1) {
  test::Compared compared = compare_canonical(g);
  INFO(to_string(compared.canonical));
  CHECK(count_ops(compared.plain, kind) == 0);
  CHECK(count_ops(compared.canonical, kind) == count);
  CHECK(compared.difference < 1e-12);
  return std::move(compared.canonical);
}

void check_not_rewritten(const GraphBuilder& g, const std::string& kind) {
  test::Compared compared = compare_canonical(g);
  INFO(to_string(compared.canonical));
  CHECK(count_ops(compared.canonical, kind) == 0);
  CHECK(compared.difference < 1e-12);
}

GraphBuilder start() {
  GraphBuilder g;
  g.use_f64();
  return g;
}

}  // namespace

TEST_CASE("Gelu with erf, in the orders that exporters write its products", "[canonical]") {
  const int order = GENERATE(0, 1, 2, 3);
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 8});
  const std::string arg = order % 2 ? g.node("Mul", {x, g.scalar(kHalfRoot)})
                                    : g.node("Div", {x, g.scalar(1 / kHalfRoot)});
  const std::string one = g.node("Add", {g.node("Erf", {arg}), g.scalar(1)});
  std::string y;
  if (order == 0) y = g.node("Mul", {g.node("Mul", {x, one}), g.scalar(0.5)});
  if (order == 1) y = g.node("Mul", {x, g.node("Mul", {g.scalar(0.5), one})});
  if (order == 2) y = g.node("Mul", {g.node("Mul", {g.scalar(0.5), x}), one});
  if (order == 3) y = g.node("Div", {g.node("Mul", {one, x}), g.scalar(2)});
  g.output(y);
  const ir::Model model = check_rewritten(g, "Gelu");
  CHECK(test::find_op(model, "Gelu").attrs.s("approximate") == "none");
}

TEST_CASE("Gelu with tanh", "[canonical]") {
  const int form = GENERATE(0, 1, 2);
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 8});
  std::string arg;
  if (form == 0) {
    const std::string cube = g.node("Mul", {x, g.node("Mul", {x, x})});
    arg = g.node("Mul", {g.scalar(kTwoOverPiRoot),
                         g.node("Add", {x, g.node("Mul", {g.scalar(0.044715), cube})})});
  } else if (form == 1) {
    const std::string cube = g.node("Pow", {x, g.scalar(3)});
    arg = g.node("Mul", {g.node("Add", {g.node("Mul", {cube, g.scalar(0.044715)}), x}),
                         g.scalar(kTwoOverPiRoot)});
  } else {
    const std::string inner = g.node("Mul", {g.node("Mul", {g.scalar(0.044715), x}), x});
    arg = g.node(
        "Mul", {g.node("Mul", {x, g.scalar(kTwoOverPiRoot)}), g.node("Add", {g.scalar(1), inner})});
  }
  const std::string one = g.node("Add", {g.scalar(1), g.node("Tanh", {arg})});
  g.output(g.node("Mul", {g.scalar(0.5), g.node("Mul", {x, one})}));
  const ir::Model model = check_rewritten(g, "Gelu");
  CHECK(test::find_op(model, "Gelu").attrs.s("approximate") == "tanh");
}

TEST_CASE("a Gelu with another number in it stays as it is", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 8});
  const std::string one =
      g.node("Add", {g.node("Erf", {g.node("Mul", {x, g.scalar(0.7)})}), g.scalar(1)});
  g.output(g.node("Mul", {g.node("Mul", {x, one}), g.scalar(0.5)}));
  check_not_rewritten(g, "Gelu");
}

TEST_CASE("Silu, alone and as a gate", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 8});
  const std::string silu = g.node("Mul", {g.node("Sigmoid", {x}), x});
  g.output(silu);
  check_rewritten(g, "Silu");

  GraphBuilder gated = start();
  const std::string gate = gated.input("gate", {"batch", 8}), up = gated.input("up", {"batch", 8});
  gated.output(gated.node("Mul", {up, gated.node("Mul", {gate, gated.node("Sigmoid", {gate})})}));
  const ir::Model model = check_rewritten(gated, "SwiGlu");
  CHECK(model.ops.size() == 1);
}

TEST_CASE("a gate whose silu is read elsewhere too stays", "[canonical]") {
  GraphBuilder g = start();
  const std::string gate = g.input("gate", {"batch", 8}), up = g.input("up", {"batch", 8});
  const std::string silu = g.node("Mul", {gate, g.node("Sigmoid", {gate})});
  g.output(g.node("Mul", {silu, up}));
  g.output(silu);
  check_not_rewritten(g, "SwiGlu");
}

TEST_CASE("LayerNorm written out", "[canonical]") {
  const int form = GENERATE(0, 1, 2);
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8});
  const std::string mean = g.node("ReduceMean", {x}, {{"axes", std::vector<int64_t>{-1}}});
  const std::string d = g.node("Sub", {x, mean});
  const std::string again = form == 1 ? g.node("Sub", {x, mean}) : d;
  const std::string square =
      form == 2 ? g.node("Mul", {d, d}) : g.node("Pow", {again, g.scalar(2)});
  const std::string var = g.node("ReduceMean", {square}, {{"axes", std::vector<int64_t>{2}}});
  const std::string root = g.node("Sqrt", {g.node("Add", {var, g.scalar(1e-5)})});
  const std::string y =
      form == 2 ? g.node("Mul", {d, g.node("Reciprocal", {root})}) : g.node("Div", {d, root});
  const std::string scaled = g.node("Mul", {y, g.weight("ln.weight", {8})});
  g.output(g.node("Add", {scaled, g.weight("ln.bias", {8})}));
  const ir::Model model = check_rewritten(g, "LayerNorm");
  CHECK(model.ops.size() == 1);
  CHECK(model.ops[0].attrs.i("axis") == -1);
  CHECK(model.ops[0].inputs.size() == 3);
}

TEST_CASE("LayerNorm over two dims, without a bias", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8});
  const std::vector<int64_t> axes{1, 2};
  const std::string d = g.node("Sub", {x, g.node("ReduceMean", {x}, {{"axes", axes}})});
  const std::string var = g.node("ReduceMean", {g.node("Pow", {d, g.scalar(2)})}, {{"axes", axes}});
  const std::string y = g.node("Div", {d, g.node("Sqrt", {g.node("Add", {var, g.scalar(1e-5)})})});
  g.output(g.node("Mul", {g.weight("ln.weight", {5, 8}), y}));
  const ir::Model model = check_rewritten(g, "LayerNorm");
  CHECK(model.ops[0].attrs.i("axis") == -2);
}

TEST_CASE("a norm whose mean and variance go over different dims stays", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8});
  const std::string d =
      g.node("Sub", {x, g.node("ReduceMean", {x}, {{"axes", std::vector<int64_t>{1, 2}}})});
  const std::string var =
      g.node("ReduceMean", {g.node("Pow", {d, g.scalar(2)})}, {{"axes", std::vector<int64_t>{2}}});
  const std::string y = g.node("Div", {d, g.node("Sqrt", {g.node("Add", {var, g.scalar(1e-5)})})});
  g.output(g.node("Mul", {g.weight("ln.weight", {8}), y}));
  check_not_rewritten(g, "LayerNorm");
}

TEST_CASE("RmsNorm in the forms of both exporters", "[canonical]") {
  const int form = GENERATE(0, 1, 2, 3);
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8});
  const std::string square = form == 3 ? g.node("Mul", {x, x}) : g.node("Pow", {x, g.scalar(2)});
  const std::string mean = g.node("ReduceMean", {square}, {{"axes", std::vector<int64_t>{-1}}});
  const std::string sum = g.node("Add", {g.scalar(1e-6), mean});
  std::string y;
  if (form == 0) y = g.node("Mul", {x, g.node("Div", {g.scalar(1), g.node("Sqrt", {sum})})});
  if (form == 1) y = g.node("Mul", {g.node("Reciprocal", {g.node("Sqrt", {sum})}), x});
  if (form == 2) y = g.node("Div", {x, g.node("Sqrt", {sum})});
  if (form == 3) y = g.node("Mul", {x, g.node("Pow", {sum, g.scalar(-0.5)})});
  g.output(g.node("Mul", {g.weight("norm.weight", {8}), y}));
  const ir::Model model = check_rewritten(g, "RmsNorm");
  CHECK(model.ops.size() == 1);
}

TEST_CASE("a mean of squares of something else is no RmsNorm", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 8}), z = g.input("z", {"batch", 8});
  const std::string mean =
      g.node("ReduceMean", {g.node("Pow", {z, g.scalar(2)})}, {{"axes", std::vector<int64_t>{-1}}});
  const std::string y = g.node("Div", {x, g.node("Sqrt", {g.node("Add", {mean, g.scalar(1e-6)})})});
  g.output(g.node("Mul", {y, g.weight("norm.weight", {8})}));
  check_not_rewritten(g, "RmsNorm");
}

namespace {

// x cos + rotate_half(x) sin over [B, 2, 3, 4], with tables of the given rows of 4.
GraphBuilder rotary_graph(const std::vector<double>& cos, const std::vector<double>& sin) {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 2, 3, 4});
  auto slice = [&](int64_t from, int64_t to) {
    return g.node("Slice", {x, g.shape({from}), g.shape({to}), g.shape({3})});
  };
  const std::string first = slice(0, 2), second = slice(2, INT64_MAX);
  const std::string rotated = g.node("Concat", {g.node("Neg", {second}), first}, {{"axis", -1}});
  const std::string c = g.floats("rotary.cos_cached", {1, 1, 3, 4}, cos);
  const std::string s = g.floats("rotary.sin_cached", {1, 1, 3, 4}, sin);
  g.output(g.node("Add", {g.node("Mul", {x, c}), g.node("Mul", {rotated, s})}));
  return g;
}

}  // namespace

TEST_CASE("Rotary with tables of equal halves", "[canonical]") {
  const std::vector<double> cos{1, .5, 1, .5, .2, .3, .2, .3, .7, .1, .7, .1};
  const std::vector<double> sin{0, .4, 0, .4, .8, .9, .8, .9, .6, .5, .6, .5};
  const ir::Model model = check_rewritten(rotary_graph(cos, sin), "Rotary");
  REQUIRE(model.ops.size() == 1);
  CHECK(model.value(model.ops[0].inputs[1]).type.shape == ir::Shape{1, 1, 3, 2});
}

TEST_CASE("tables whose halves differ are no Rotary", "[canonical]") {
  const std::vector<double> cos{1, .5, 1, .5, .2, .3, .2, .3, .7, .1, .7, .1};
  std::vector<double> sin{0, .4, 0, .4, .8, .9, .8, .9, .6, .5, .6, .5};
  sin[7] = 0.91;
  check_not_rewritten(rotary_graph(cos, sin), "Rotary");
}

TEST_CASE("Rotary with tables computed from position inputs", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 2, 3, 4});
  const std::string angles = g.input("angles", {"batch", 3, 2});
  const std::string both = g.node("Concat", {angles, angles}, {{"axis", 2}});
  const std::string c = g.node("Unsqueeze", {g.node("Cos", {both}), g.shape({1})});
  const std::string s = g.node("Unsqueeze", {g.node("Sin", {both}), g.shape({1})});
  const std::string first = g.node("Slice", {x, g.shape({0}), g.shape({2}), g.shape({3})});
  const std::string second = g.node("Slice", {x, g.shape({2}), g.shape({4}), g.shape({3})});
  const std::string rotated = g.node("Concat", {g.node("Neg", {second}), first}, {{"axis", -1}});
  g.output(g.node("Add", {g.node("Mul", {rotated, s}), g.node("Mul", {c, x})}));
  check_rewritten(g, "Rotary");
}

TEST_CASE("Linear keeps the weight as it is stored", "[canonical]") {
  const bool transposed = GENERATE(false, true), bias = GENERATE(false, true);
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8});
  std::string w =
      g.weight("fc.weight", transposed ? std::vector<int64_t>{6, 8} : std::vector<int64_t>{8, 6});
  if (transposed) w = g.node("Transpose", {w}, {{"perm", std::vector<int64_t>{1, 0}}});
  std::string y = g.node("MatMul", {x, w});
  if (bias) y = g.node("Add", {g.weight("fc.bias", {6}), y});
  g.output(y);
  const ir::Model model = check_rewritten(g, "Linear");
  REQUIRE(model.ops.size() == 1);
  CHECK(model.ops[0].attrs.i("trans_w") == transposed);
  CHECK(model.params.size() == (bias ? 2u : 1u));
}

TEST_CASE("a product by a computed matrix is no Linear", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8}), w = g.input("w", {"batch", 8, 6});
  g.output(g.node("MatMul", {x, w}));
  check_not_rewritten(g, "Linear");
}

TEST_CASE("a bias that is not one number a column stays an Add", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8});
  const std::string y = g.node("MatMul", {x, g.weight("fc.weight", {8, 6})});
  g.output(g.node("Add", {y, g.weight("positions", {5, 6})}));
  const test::Compared compared = compare_canonical(g);
  CHECK(count_ops(compared.canonical, "Add") == 1);
  CHECK(count_ops(compared.canonical, "Linear") == 1);
}

TEST_CASE("Gemm between reshapes is a Linear over all rows", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 8});
  const std::string flat = g.node("Reshape", {x, g.shape({-1, 8})});
  const std::string y =
      g.node("Gemm", {flat, g.weight("fc.weight", {8, 6}), g.weight("fc.bias", {6})});
  g.output(g.node("Reshape", {y, g.shape({-1, 5, 6})}));
  const test::Compared compared = compare_canonical(g);
  INFO(to_string(compared.canonical));
  CHECK(compared.canonical.ops.size() == 1);
  CHECK(compared.difference < 1e-12);
}

TEST_CASE("a Linear over steps and samples flattened together keeps them apart", "[canonical]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", 5, 2, 4});
  const std::string steps = g.node("Transpose", {x}, {{"perm", std::vector<int64_t>{1, 0, 2, 3}}});
  const std::string flat = g.node("Reshape", {steps, g.shape({-1, 8})});  // [5B, 8], by step
  const std::string y =
      g.node("Gemm", {flat, g.weight("fc.weight", {8, 6}), g.weight("fc.bias", {6})});
  g.output(g.node("Reshape", {y, g.shape({5, -1, 6})}));
  const test::Compared compared = compare_canonical(g);
  INFO(to_string(compared.canonical));
  CHECK(test::find_op(compared.canonical, "Linear").outputs[0] == compared.canonical.outputs[0]);
  CHECK(compared.canonical.value(compared.canonical.outputs[0]).type.shape ==
        ir::Shape{5, ir::Dim::batch_size(), 6});
  CHECK(compared.difference < 1e-12);
}

namespace {

constexpr int64_t kHeads = 4, kSeq = 6, kDim = 4;

struct AttentionForm {
  bool grouped = false;  // two key heads, repeated by Unsqueeze, Expand, Reshape
  int scale = 0;         // 0 Mul on scores, 1 Div on scores, 2 split over q and k
  int mask = 0;          // see add_mask
  int transpose = 0;  // 0 swaps [B,H,T,d], 1 from [B,T,H,d] at once, 2 by merging batch and heads
  double hidden = -INFINITY;
};

std::vector<double> causal_floats(double hidden) {
  std::vector<double> mask;
  for (int64_t i = 0; i < kSeq; i++) {
    for (int64_t j = 0; j < kSeq; j++) mask.push_back(j <= i ? 0 : hidden);
  }
  return mask;
}

std::vector<int> causal_bools(bool keep) {
  std::vector<int> mask;
  for (int64_t i = 0; i < kSeq; i++) {
    for (int64_t j = 0; j < kSeq; j++) mask.push_back((j <= i) == keep);
  }
  return mask;
}

std::string add_mask(GraphBuilder& g, const std::string& scores, const AttentionForm& form) {
  switch (form.mask) {
    case 1:
      return g.node("Add", {scores, g.floats("mask", {kSeq, kSeq}, causal_floats(form.hidden))});
    case 2:
      return g.node("Where", {g.bools("hide", {1, 1, kSeq, kSeq}, causal_bools(false)),
                              g.scalar(form.hidden), scores});
    case 3:
      return g.node("Where", {g.bools("keep", {1, 1, kSeq, kSeq}, causal_bools(true)), scores,
                              g.scalar(form.hidden)});
    case 4:
      return g.node("Add", {g.input("bias", {"batch", 1, kSeq, kSeq}), scores});
    case 5: {  // hides one column of each row only
      std::vector<double> values(kSeq * kSeq, 0);
      for (int64_t i = 0; i < kSeq; i++)
        values[static_cast<size_t>(i * kSeq + (i + 1) % kSeq)] = form.hidden;
      return g.node("Add", {scores, g.floats("mask", {1, kSeq, kSeq}, values)});
    }
    case 6: {  // keys of padding, from data
      const std::string padding =
          g.input("padding", {"batch", 1, 1, kSeq}, ::onnx::TensorProto::BOOL);
      return g.node("Where", {padding, g.scalar(form.hidden), scores});
    }
    default:
      return scores;
  }
}

std::string repeat(GraphBuilder& g, const std::string& kv) {
  const std::string wide = g.node("Unsqueeze", {kv, g.shape({2})});
  const std::string expanded = g.node("Expand", {wide, g.shape({1, 2, 2, kSeq, kDim})});
  return g.node("Reshape", {expanded, g.shape({-1, kHeads, kSeq, kDim})});
}

std::string transposed_keys(GraphBuilder& g, const std::string& name, const AttentionForm& form) {
  const int64_t heads = form.grouped ? 2 : kHeads;
  if (form.transpose == 1) {
    const std::string k = g.input(name, {"batch", kSeq, kHeads, kDim});
    return g.node("Transpose", {k}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
  }
  std::string k = g.input(name, {"batch", heads, kSeq, kDim});
  if (form.grouped) k = repeat(g, k);
  if (form.transpose == 0)
    return g.node("Transpose", {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const std::string merged = g.node("Reshape", {k, g.shape({-1, kSeq, kDim})});
  const std::string swapped =
      g.node("Transpose", {merged}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  return g.node("Reshape", {swapped, g.shape({-1, kHeads, kDim, kSeq})});
}

GraphBuilder attention_graph(const AttentionForm& form) {
  GraphBuilder g = start();
  std::string q = g.input("q", {"batch", kHeads, kSeq, kDim});
  std::string k = transposed_keys(g, "k", form);
  std::string v = g.input("v", {"batch", form.grouped ? 2 : kHeads, kSeq, kDim});
  if (form.grouped) v = repeat(g, v);
  if (form.scale == 2) {
    q = g.node("Mul", {q, g.scalar(std::sqrt(0.5))});
    k = g.node("Mul", {k, g.scalar(std::sqrt(0.5))});
  }
  std::string scores = g.node("MatMul", {q, k});
  if (form.scale == 0) scores = g.node("Mul", {scores, g.scalar(0.5)});
  if (form.scale == 1) scores = g.node("Div", {scores, g.scalar(2)});
  scores = add_mask(g, scores, form);
  g.output(g.node("MatMul", {g.node("Softmax", {scores}, {{"axis", -1}}), v}));
  return g;
}

}  // namespace

TEST_CASE("Attention in every combination of scale, transpose and groups", "[canonical]") {
  AttentionForm form;
  form.grouped = GENERATE(false, true);
  form.scale = GENERATE(0, 1, 2);
  form.transpose = GENERATE(0, 1, 2);
  if (form.grouped && form.transpose == 1) return;  // nobody writes it
  const ir::Model model = check_rewritten(attention_graph(form), "Attention");
  CHECK(test::find_op(model, "Attention").attrs.f("scale") == Approx(0.5));
  if (form.grouped) CHECK(count_ops(model, "Expand") == 0);
  if (form.transpose != 1) CHECK(model.ops.size() == 1);
}

TEST_CASE("the Attention of opset 23 reads unrepeated keys and values", "[canonical]") {
  GraphBuilder g(23, 11);
  g.use_f64();
  const std::string q = g.input("q", {"batch", kHeads, kSeq, kDim});
  const std::string k = repeat(g, g.input("k", {"batch", 2, kSeq, kDim}));
  const std::string v = repeat(g, g.input("v", {"batch", 2, kSeq, kDim}));
  g.output(g.node("Attention", {q, k, v}, {{"is_causal", 1}}));
  const test::Compared compared = compare_canonical(g);
  CHECK(compared.canonical.ops.size() == 1);
  CHECK(compared.difference < 1e-12);
}

TEST_CASE("Attention with a causal mask drops it", "[canonical]") {
  AttentionForm form;
  form.mask = GENERATE(1, 2, 3);
  form.hidden = GENERATE(-INFINITY, -3.4028234663852886e38);
  const ir::Model model = check_rewritten(attention_graph(form), "Attention");
  REQUIRE(model.ops.size() == 1);
  CHECK(model.ops[0].attrs.i("causal") == 1);
  CHECK(model.ops[0].inputs.size() == 3);
}

TEST_CASE("Attention keeps a mask that is not causal", "[canonical]") {
  AttentionForm form;
  form.mask = GENERATE(4, 5, 6);
  const ir::Model model = check_rewritten(attention_graph(form), "Attention");
  const ir::Op& attention = test::find_op(model, "Attention");
  CHECK(attention.attrs.i("causal") == 0);
  CHECK(attention.inputs.size() == 4);
}

TEST_CASE("a mask that hides by a moderate number is added, not taken for causal", "[canonical]") {
  AttentionForm form;
  form.mask = 1;
  form.hidden = -5;
  const ir::Model model = check_rewritten(attention_graph(form), "Attention");
  CHECK(test::find_op(model, "Attention").attrs.i("causal") == 0);
  CHECK(test::find_op(model, "Attention").inputs.size() == 4);
}

TEST_CASE("scores replaced by a moderate number are no Attention", "[canonical]") {
  AttentionForm form;
  form.mask = 2;
  form.hidden = -5;
  check_not_rewritten(attention_graph(form), "Attention");
}

TEST_CASE("rows that hide everything and are set to zero afterwards", "[canonical]") {
  GraphBuilder g = start();
  const std::string q = g.input("q", {"batch", 2, 3, 4}), v = g.input("v", {"batch", 2, 3, 4});
  const std::string k = g.node("Transpose", {g.input("k", {"batch", 2, 3, 4})},
                               {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const std::string hide = g.bools("hide", {3, 3}, {1, 1, 1, 0, 1, 0, 0, 0, 1});
  const std::string scores = g.node("Where", {hide, g.scalar(-INFINITY), g.node("MatMul", {q, k})});
  const std::string p = g.node("Softmax", {scores}, {{"axis", 3}});
  const std::string filled = g.node("Where", {g.node("IsNaN", {p}), g.scalar(0), p});
  g.output(g.node("MatMul", {filled, v}));
  check_rewritten(g, "Attention");
}

TEST_CASE("softmax over another dim is no Attention", "[canonical]") {
  GraphBuilder g = start();
  const std::string q = g.input("q", {"batch", 2, 3, 4}), v = g.input("v", {"batch", 2, 3, 4});
  const std::string k = g.node("Transpose", {g.input("k", {"batch", 2, 3, 4})},
                               {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  g.output(g.node("MatMul", {g.node("Softmax", {g.node("MatMul", {q, k})}, {{"axis", 2}}), v}));
  check_not_rewritten(g, "Attention");
}
