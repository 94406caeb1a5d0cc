// Mixtures of experts: the forms that are recognised, that they give the numbers of the graph as it
// was, and what must not be.

#include <catch2/catch.hpp>

#include "tests/frontend/onnx/run_model.h"

namespace {

using namespace piper;
using test::compare_canonical;
using test::count_ops;
using test::GraphBuilder;
using Ints = std::vector<int64_t>;

constexpr int64_t kExperts = 4, kChoices = 2, kWidth = 6, kHidden = 5;

GraphBuilder start() {
  GraphBuilder g;
  g.use_f64();
  return g;
}

struct Routing {
  std::string x, gates, experts;  // [batch, width], [batch, choices] twice
};

Routing route(GraphBuilder& g, int64_t experts = kExperts, int64_t choices = kChoices) {
  const std::string x = g.input("x", {"batch", kWidth});
  const std::string scores =
      g.node("Softmax", {g.node("MatMul", {x, g.weight("gate.weight", {kWidth, experts}, 2)})});
  const auto top = g.node_n("TopK", 2, {scores, g.shape({choices})});
  return {x, top[0], top[1]};
}

std::string reshape(GraphBuilder& g, const std::string& x, const Ints& shape) {
  return g.node("Reshape", {x, g.shape(shape)});
}
std::string transpose(GraphBuilder& g, const std::string& x, const Ints& perm) {
  return g.node("Transpose", {x}, {{"perm", perm}});
}

// How a form writes the product of x[pairs, in] with weights[experts, out, in].
enum class Product { kMatrixFirst, kTransposedAfter, kTransposedBefore, kRowFirst };

std::string product(GraphBuilder& g, Product form, const std::string& x, const std::string& experts,
                    const std::string& name, int64_t out, int64_t in) {
  const bool stored_in_out = form == Product::kRowFirst || form == Product::kTransposedBefore;
  std::string w = g.weight(name, stored_in_out ? Ints{kExperts, in, out} : Ints{kExperts, out, in});
  if (form == Product::kTransposedBefore) w = transpose(g, w, {0, 2, 1});
  std::string picked = g.node("Gather", {w, experts});
  if (form == Product::kMatrixFirst || form == Product::kTransposedBefore) {
    return reshape(g, g.node("MatMul", {picked, reshape(g, x, {-1, in, 1})}), {-1, out});
  }
  if (form == Product::kTransposedAfter) picked = transpose(g, picked, {0, 2, 1});
  return reshape(g, g.node("MatMul", {reshape(g, x, {-1, 1, in}), picked}), {-1, out});
}

// x[token] for the token of every pair: 0, 0, 1, 1, ...
std::string repeated(GraphBuilder& g, const std::string& x, bool by_index) {
  if (!by_index) {
    const std::string each = g.node("Unsqueeze", {x, g.shape({1})});
    return reshape(g, g.node("Expand", {each, g.shape({1, kChoices, 1})}), {-1, kWidth});
  }
  const std::string batch =
      g.node("Gather", {g.node("Shape", {x}), g.ints("zero", {}, {0})}, {{"axis", 0}});
  const std::string token =
      g.node("Range", {g.ints("from", {}, {0}), batch, g.ints("step", {}, {1})});
  const std::string pairs =
      g.node("Expand", {g.node("Unsqueeze", {token, g.shape({1})}), g.shape({1, kChoices})});
  return g.node("Gather", {x, reshape(g, pairs, {-1})});
}

test::Compared check(const GraphBuilder& g) {
  test::Compared compared = compare_canonical(g, 7);
  INFO(to_string(compared.canonical));
  CHECK(count_ops(compared.plain, "GroupedLinear") == 0);
  CHECK(compared.difference < 1e-12);
  return compared;
}

// All that is left are two products and one way to the experts and back.
ir::Model check_whole(const GraphBuilder& g) {
  test::Compared compared = check(g);
  INFO(to_string(compared.canonical));
  for (const char* kind : {"MoERoute", "MoEDispatch", "MoECombine"})
    CHECK(count_ops(compared.canonical, kind) == 1);
  CHECK(count_ops(compared.canonical, "GroupedLinear") == 2);
  for (const char* kind : {"Gather", "Range", "Expand"})
    CHECK(count_ops(compared.canonical, kind) == 0);
  return std::move(compared.canonical);
}

}  // namespace

TEST_CASE("experts whose weights are picked for every pair", "[experts]") {
  const Product form = GENERATE(Product::kMatrixFirst, Product::kTransposedAfter,
                                Product::kTransposedBefore, Product::kRowFirst);
  const bool by_index = GENERATE(true, false);
  GraphBuilder g = start();
  const Routing routing = route(g);
  std::string experts = reshape(g, routing.experts, {-1});
  if (GENERATE(false, true))
    experts =
        g.node("Clip", {experts, g.ints("least", {}, {0}), g.ints("most", {}, {kExperts - 1})});
  const std::string up =
      product(g, form, repeated(g, routing.x, by_index), experts, "up", kHidden, kWidth);
  const std::string down = product(g, form, g.node("Tanh", {up}), experts, "down", kWidth, kHidden);
  const std::string weighted = g.node("Mul", {down, reshape(g, routing.gates, {-1, 1})});
  g.output(g.node("ReduceSum", {reshape(g, weighted, {-1, kChoices, kWidth}), g.shape({1})},
                  {{"keepdims", 0}}));
  const ir::Model model = check_whole(g);
  const ir::Op& dispatch = test::find_op(model, "MoEDispatch");
  CHECK(model.value(dispatch.inputs[0]).name == "x");
  CHECK(model.value(dispatch.inputs[1]).type.shape == ir::Shape{ir::Dim::batch_size(), kChoices});
  CHECK(test::find_op(model, "MoECombine").inputs.size() == 3);
  for (const ir::Op& op : model.ops) {
    if (op.kind == "GroupedLinear") CHECK(model.value(op.inputs[1]).param.valid());
  }
}

TEST_CASE("experts with biases, a gate of two halves, a clamp and a scale", "[experts]") {
  GraphBuilder g = start();
  const Routing routing = route(g);
  const std::string experts = reshape(g, routing.experts, {-1});
  std::string up = product(g, Product::kMatrixFirst, repeated(g, routing.x, true), experts, "up",
                           2 * kHidden, kWidth);
  up = g.node("Add",
              {up, g.node("Gather", {g.weight("up.bias", {kExperts, 2 * kHidden}), experts})});
  const auto part = [&](int64_t from, int64_t to, int64_t step) {
    return g.node("Slice", {up, g.shape({from}), g.shape({to}), g.shape({-1}), g.shape({step})});
  };
  const bool interleaved = GENERATE(false, true);
  const std::string gate = interleaved ? part(0, 2 * kHidden, 2) : part(0, kHidden, 1);
  const std::string value = interleaved ? part(1, 2 * kHidden, 2) : part(kHidden, 2 * kHidden, 1);
  const std::string silu = g.node("Mul", {gate, g.node("Sigmoid", {gate})});
  const std::string limited = g.node("Min", {value, g.scalar(0.7)});
  const std::string hidden =
      g.node("Mul", {g.node("Mul", {silu, limited}), g.weight("scale", {kHidden})});
  std::string down = product(g, Product::kMatrixFirst, hidden, experts, "down", kWidth, kHidden);
  down =
      g.node("Add", {g.node("Gather", {g.weight("down.bias", {kExperts, kWidth}), experts}), down});
  const std::string by_token = reshape(g, down, {-1, kChoices, kWidth});
  const std::string weighted =
      g.node("Mul", {by_token, g.node("Unsqueeze", {routing.gates, g.shape({2})})});
  g.output(g.node("ReduceSum", {weighted, g.shape({-2})}, {{"keepdims", 0}}));
  const ir::Model model = check_whole(g);
  for (const ir::Op& op : model.ops) {
    if (op.kind == "GroupedLinear") CHECK(op.inputs.size() == 4);
  }
}

TEST_CASE("one expert a token, by ArgMax", "[experts]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", kWidth});
  const std::string scores = g.node("MatMul", {x, g.weight("gate.weight", {kWidth, kExperts}, 2)});
  const std::string expert = g.node("ArgMax", {scores}, {{"axis", -1}, {"keepdims", 0}});
  const std::string up = product(g, Product::kRowFirst, x, expert, "up", kHidden, kWidth);
  g.output(product(g, Product::kRowFirst, g.node("Relu", {up}), expert, "down", kWidth, kHidden));
  check_whole(g);
}

TEST_CASE("tokens that all their choices read without being repeated", "[experts]") {
  GraphBuilder g = start();
  const Routing routing = route(g);
  const std::string picked =
      g.node("Gather", {g.weight("up", {kExperts, kHidden, kWidth}), routing.experts});
  const std::string up = g.node("MatMul", {picked, reshape(g, routing.x, {-1, 1, kWidth, 1})});
  const std::string back =
      g.node("Gather", {g.weight("down", {kExperts, kWidth, kHidden}), routing.experts});
  const std::string down =
      g.node("Squeeze", {g.node("MatMul", {back, g.node("Tanh", {up})}), g.shape({-1})});
  const std::string weighted =
      g.node("Mul", {down, g.node("Unsqueeze", {routing.gates, g.shape({-1})})});
  g.output(g.node("ReduceSum", {weighted, g.shape({1})}, {{"keepdims", 0}}));
  check_whole(g);
}

TEST_CASE("expert numbers that may be out of range keep their meaning", "[experts]") {
  GraphBuilder g = start();
  const bool given = GENERATE(true, false);
  const std::string x = g.input("x", {"batch", kWidth});
  std::string expert;
  if (given) {
    expert = g.input("expert", {"batch"}, ::onnx::TensorProto::INT64);
  } else {  // of more experts than there are weights
    const std::string scores =
        g.node("MatMul", {x, g.weight("gate.weight", {kWidth, kExperts + 1}, 2)});
    expert = g.node("ArgMax", {scores}, {{"axis", -1}, {"keepdims", 0}});
  }
  g.output(product(g, Product::kRowFirst, x, expert, "up", kHidden, kWidth));
  CHECK(count_ops(check(g).canonical, "GroupedLinear") == 0);
}

TEST_CASE("a function of several pairs stays among the tokens", "[experts]") {
  GraphBuilder g = start();
  const Routing routing = route(g);
  const std::string experts = reshape(g, routing.experts, {-1});
  const std::string up = product(g, Product::kMatrixFirst, repeated(g, routing.x, true), experts,
                                 "up", kHidden, kWidth);
  const bool softmax = GENERATE(true, false);
  std::string mixed;
  if (softmax) {  // over the choices of a token
    mixed = reshape(g, g.node("Softmax", {reshape(g, up, {-1, kChoices, kHidden})}, {{"axis", 1}}),
                    {-1, kHidden});
  } else {  // every pair another number
    mixed = g.node("Mul", {up, reshape(g, routing.gates, {-1, 1})});
  }
  g.output(product(g, Product::kMatrixFirst, mixed, experts, "down", kWidth, kHidden));
  const ir::Model model = std::move(check(g).canonical);
  CHECK(count_ops(model, "GroupedLinear") == 2);
  CHECK(count_ops(model, "MoEDispatch") == 2);
}

TEST_CASE("tokens repeated in another order are gathered", "[experts]") {
  GraphBuilder g = start();
  const Routing routing = route(g);
  const std::string experts = reshape(g, routing.experts, {-1});
  // 0, 1, ..., 0, 1, ...: not what the pairs are.
  const std::string all =
      g.node("Expand", {g.node("Unsqueeze", {routing.x, g.shape({0})}), g.shape({kChoices, 1, 1})});
  g.output(product(g, Product::kMatrixFirst, reshape(g, all, {-1, kWidth}), experts, "up", kHidden,
                   kWidth));
  const ir::Model model = std::move(check(g).canonical);
  const ir::Op& dispatch = test::find_op(model, "MoEDispatch");
  CHECK(model.value(dispatch.inputs[1]).type.shape.back() == ir::Dim(1));
}

namespace {

// A node of domain `piper` with that many outputs.
std::vector<std::string> piper_node(GraphBuilder& g, const std::string& op, int outputs,
                                    const std::vector<std::string>& inputs,
                                    const std::vector<GraphBuilder::Attr>& attrs = {}) {
  const auto names = g.node_n(op, outputs, inputs, attrs);
  g.last_node().set_domain("piper");
  if (g.proto().opset_import_size() == 1) {
    auto* opset = g.proto().add_opset_import();
    opset->set_domain("piper");
    opset->set_version(1);
  }
  return names;
}

// Tokens [batch, kTokens, width] of samples that are groups, or [batch, width].
constexpr int64_t kTokens = 5;
Routing route_samples(GraphBuilder& g) {
  const std::string x = g.input("x", {"batch", kTokens, kWidth});
  const std::string scores =
      g.node("Softmax", {g.node("MatMul", {x, g.weight("gate.weight", {kWidth, kExperts}, 2)})});
  const auto top = g.node_n("TopK", 2, {scores, g.shape({kChoices})});
  return {x, top[0], top[1]};
}

}  // namespace

TEST_CASE("padded rows of experts with a capacity for each sample", "[experts]") {
  const bool swapped = GENERATE(false, true);
  const int64_t capacity = GENERATE(2, 3, 0);
  const int choices_first = GENERATE(0, 1);
  GraphBuilder g = start();
  const Routing routing = route_samples(g);
  const auto rows = piper_node(
      g, "MoEDispatch", 2, {routing.x, routing.experts},
      {{"num_experts", kExperts}, {"capacity", capacity}, {"choices_first", choices_first}});
  const auto stack = [&](const std::string& name, int64_t in, int64_t out) {
    if (!swapped) return g.node("Unsqueeze", {g.weight(name, {kExperts, in, out}), g.shape({1})});
    return transpose(g, g.node("Unsqueeze", {g.weight(name, {kExperts, out, in}), g.shape({1})}),
                     {0, 1, 3, 2});
  };
  std::string up = g.node("MatMul", {rows[0], stack("up", kWidth, kHidden)});
  up = g.node(
      "Add", {up, reshape(g, g.weight("up.bias", {kExperts, kHidden}), {kExperts, 1, 1, kHidden})});
  // Not 0 at 0: the padding of the hidden rows is no zeros.
  const std::string hidden = g.node("Mul", {g.node("Sigmoid", {up}), g.weight("scale", {kHidden})});
  const std::string down = g.node("MatMul", {hidden, stack("down", kHidden, kWidth)});
  g.output(piper_node(g, "MoECombine", 1, {down, rows[1], routing.gates})[0]);
  const ir::Model model = check_whole(g);
  const ir::Op& op = test::find_op(model, "MoERoute");
  CHECK(op.attrs.i("padded") == 0);
  CHECK(op.attrs.i("capacity") == capacity);
  const ir::Op& up_op = test::find_op(model, "GroupedLinear");
  CHECK(up_op.inputs.size() == 4);
  CHECK(model.value(up_op.inputs[1]).param.valid());
  CHECK(model.value(up_op.inputs[0]).type.shape[0] == ir::Dim(0, kTokens * kChoices));
}

TEST_CASE("padded rows of one group, with a place for every token", "[experts]") {
  GraphBuilder g = start();
  const Routing routing = route(g);
  const auto rows =
      piper_node(g, "MoEDispatch", 2, {routing.x, routing.experts}, {{"num_experts", kExperts}});
  const std::string up = g.node("MatMul", {rows[0], g.weight("up", {kExperts, kWidth, kHidden})});
  const std::string down =
      g.node("MatMul", {g.node("Relu", {up}), g.weight("down", {kExperts, kHidden, kWidth})});
  g.output(piper_node(g, "MoECombine", 1, {down, rows[1]})[0]);
  CHECK(test::find_op(check_whole(g), "MoERoute").attrs.i("capacity") == 0);
}

TEST_CASE("a token that chooses an expert twice is dropped where its rows would not fit",
          "[experts]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", kTokens, kWidth});
  const std::string expert =
      g.input("expert", {"batch", kTokens, kChoices}, ::onnx::TensorProto::INT64);
  const auto rows = piper_node(g, "MoEDispatch", 2, {x, expert}, {{"num_experts", 2}});
  const std::string up =
      g.node("MatMul",
             {rows[0], g.node("Unsqueeze", {g.weight("up", {2, kWidth, kWidth}), g.shape({1})})});
  g.output(piper_node(g, "MoECombine", 1, {up, rows[1]})[0]);
  const ir::Model model = std::move(check(g).canonical);
  CHECK(count_ops(model, "GroupedLinear") == 1);
  CHECK(test::find_op(model, "MoERoute").attrs.i("capacity") == kTokens);
}

TEST_CASE("a function of several padded rows leaves them padded", "[experts]") {
  GraphBuilder g = start();
  const Routing routing = route_samples(g);
  const auto rows = piper_node(g, "MoEDispatch", 2, {routing.x, routing.experts},
                               {{"num_experts", kExperts}, {"capacity", 3}});
  const std::string up = g.node(
      "MatMul",
      {rows[0], g.node("Unsqueeze", {g.weight("up", {kExperts, kWidth, kWidth}), g.shape({1})})});
  g.output(piper_node(g, "MoECombine", 1,
                      {g.node("Softmax", {up}, {{"axis", 2}}), rows[1], routing.gates})[0]);
  CHECK(count_ops(check(g).canonical, "GroupedLinear") == 0);
}

TEST_CASE("an expert node that does not fit is refused by name", "[experts]") {
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", kTokens, kWidth});
  const int wrong = GENERATE(0, 1, 2, 3);
  const std::string index =
      wrong == 0   ? g.input("index", {"batch", 2}, ::onnx::TensorProto::INT64)
      : wrong == 1 ? g.input("index", {"batch", kTokens, 2})
                   : g.input("index", {"batch", kTokens, 2}, ::onnx::TensorProto::INT64);
  const auto rows = piper_node(g, "MoEDispatch", 2, {x, index},
                               {{"num_experts", wrong == 2 ? 0 : 4}, {"capacity", 3}});
  const std::string slot = wrong == 3 ? g.node("Cast", {rows[1]}, {{"to", 1}}) : rows[1];
  g.output(piper_node(g, "MoECombine", 1, {rows[0], slot})[0]);
  const test::Imported imported = test::import_graph(g);
  INFO(imported.messages);
  CHECK_FALSE(imported.model);
  CHECK(imported.has("E0405"));
  CHECK(imported.has(wrong == 3 ? "MoECombine" : "MoEDispatch"));
}

namespace {

constexpr int64_t kRoom = 3;

// Masks as GShard makes them, in the ways that they are written.
struct MaskForm {
  bool choices_first = false;
  int place = 0;                 // how the place of a pair in its expert is counted
  bool keeps = false;            // pairs without a place are masked, too
  bool experts_outside = false;  // rows go through the experts as [experts, groups, ...]
  bool integers = false;         // one-hot of integers
  int64_t room = kRoom;
  bool one = false;  // choice, by ArgMax
  int cap = 0;       // how places that are too high are kept out of the one-hot
  int wrong = 0;     // something that makes it another function
};

class MaskBuilder {
 public:
  MaskBuilder(GraphBuilder& g, const Routing& routing, const MaskForm& form) : g_(g), form_(form) {
    const auto listed = [&](const std::string& v) {
      if (form.one) return v;
      return reshape(g, form.choices_first ? transpose(g, v, {0, 2, 1}) : v,
                     {0, kTokens * kChoices});
    };
    const std::string expert = listed(routing.experts);
    const std::string hot = one_hot(expert, kExperts, "experts");
    std::string before =
        g.node("CumSum", {hot, g.ints("along", {}, {1})},
               {{"exclusive", form.place == 0 ? 1 : 0}, {"reverse", form.wrong == 1 ? 1 : 0}});
    if (form.place == 1) before = g.node("Sub", {before, hot});
    if (form.place == 2) before = g.node("Sub", {before, number(1)});
    std::string place =
        g.node("ReduceSum", {g.node("Mul", {before, hot}), g.shape({-1})}, {{"keepdims", 0}});
    if (form.place == 3) place = g.node("Sub", {place, number(1)});
    const int64_t limit = form.wrong == 2 ? kRoom - 1 : kRoom;
    const std::string kept = g.node("Less", {place, number(limit)});
    std::string at = place;
    if (form.cap == 1)
      at = g.node("Min", {place, number(form.wrong == 6 ? form.room - 1 : form.room)});
    if (form.cap == 2) at = g.node("Where", {kept, place, number(0)});
    if (form.cap == 3)
      at = g.node("Mul", {place, g.node("Cast", {kept}, {{"to", form.integers ? 7 : 11}})});
    if (form.cap == 4)
      at = g.node("Where",
                  {g.node("Greater", {place, number(form.room)}), number(form.room), place});
    if (!form.integers) at = g.node("Cast", {at}, {{"to", int{::onnx::TensorProto::INT64}}});
    const bool sliced = form.cap == 1 || form.cap == 4;
    std::string in_expert = one_hot(at, form.room + (sliced ? 1 : 0), "room");
    if (sliced)
      in_expert = g.node("Slice", {in_expert, g.shape({0}), g.shape({form.room}), g.shape({-1})});
    if (form.keeps)
      in_expert =
          g.node("Mul", {as_float(in_expert), g.node("Unsqueeze", {as_float(kept), g.shape({2})})});
    pairs_ = g.node("Mul", {g.node("Unsqueeze", {as_float(hot), g.shape({3})}),
                            g.node("Unsqueeze", {as_float(in_expert), g.shape({2})})});
    const std::string gates = reshape(g, listed(routing.gates), {0, -1, 1, 1});
    const std::string gated = g.node("Mul", {pairs_, gates});
    dispatch_ = sum(form.wrong == 3 ? gated : pairs_);
    combine_ = sum(form.wrong == 4 ? g.node("Mul", {gated, gates}) : gated);
  }

  std::string output(const std::string& x) {
    const std::string flat = reshape(g_, dispatch_, {0, kTokens, kExperts * form_.room});
    const std::string there = g_.node("MatMul", {transpose(g_, flat, {0, 2, 1}), x});
    std::string rows = reshape(g_, there, {0, kExperts, form_.room, kWidth});
    if (form_.experts_outside) rows = transpose(g_, rows, {1, 0, 2, 3});
    const auto stack = [&](const std::string& w) {
      return form_.experts_outside ? g_.node("Unsqueeze", {w, g_.shape({1})}) : w;
    };
    const std::string up =
        g_.node("MatMul", {rows, stack(g_.weight("up", {kExperts, kWidth, kHidden}))});
    const std::string bias = g_.weight("bias", {kExperts, form_.experts_outside ? 1 : kHidden,
                                                form_.experts_outside ? kHidden : 1});
    const std::string hidden = g_.node(
        "Sigmoid",
        {g_.node("Add", {up, reshape(g_, bias,
                                     form_.experts_outside ? Ints{kExperts, 1, 1, kHidden}
                                                           : Ints{kExperts, 1, kHidden})})});
    rows = g_.node("MatMul", {hidden, stack(g_.weight("down", {kExperts, kHidden, kWidth}))});
    if (form_.experts_outside) rows = transpose(g_, rows, {1, 0, 2, 3});
    const std::string back = reshape(g_, combine_, {0, kTokens, kExperts * form_.room});
    return g_.node("MatMul", {back, reshape(g_, rows, {0, kExperts * form_.room, kWidth})});
  }

 private:
  std::string number(int64_t n) {
    if (!form_.integers) return g_.scalar(static_cast<double>(n));
    return g_.ints("number" + std::to_string(numbers_++), {}, {n});
  }
  std::string as_float(const std::string& v) {
    return g_.node("Cast", {v}, {{"to", int{::onnx::TensorProto::DOUBLE}}});
  }
  std::string one_hot(const std::string& index, int64_t n, const std::string& name) {
    const std::string values = form_.integers ? g_.ints(name + ".values", {2}, {0, 1})
                                              : g_.floats(name + ".values", {2}, {0, 1});
    return g_.node("OneHot", {index, g_.ints(name + ".depth", {}, {n}), values});
  }
  std::string sum(const std::string& pairs) {
    if (form_.one) return pairs;
    const Ints shape = form_.choices_first != (form_.wrong == 5)
                           ? Ints{0, kChoices, kTokens, kExperts, form_.room}
                           : Ints{0, kTokens, kChoices, kExperts, form_.room};
    return g_.node(
        "ReduceSum",
        {reshape(g_, pairs, shape), g_.shape({form_.choices_first != (form_.wrong == 5) ? 1 : 2})},
        {{"keepdims", 0}});
  }

  GraphBuilder& g_;
  MaskForm form_;
  std::string pairs_, dispatch_, combine_;
  int numbers_ = 0;
};

}  // namespace

TEST_CASE("experts by masks of places", "[experts]") {
  MaskForm form;
  form.choices_first = GENERATE(false, true);
  form.place = GENERATE(0, 1, 2, 3);
  form.keeps = GENERATE(false, true);
  form.experts_outside = GENERATE(false, true);
  form.integers = GENERATE(false, true);
  GraphBuilder g = start();
  const Routing routing = route_samples(g);
  MaskBuilder masks(g, routing, form);
  g.output(masks.output(routing.x));
  const ir::Model model = check_whole(g);
  const ir::Op& op = test::find_op(model, "MoERoute");
  CHECK(op.attrs.i("padded") == 0);
  CHECK(op.attrs.i("capacity") == kRoom);
  CHECK(op.attrs.i("choices_first") == (form.choices_first ? 1 : 0));
  for (const char* kind : {"CumSum", "Equal", "Less"}) CHECK(count_ops(model, kind) == 0);
  CHECK(test::find_op(model, "GroupedLinear").inputs.size() == 4);
}

TEST_CASE("places that are too high kept out of a mask's one-hot", "[experts]") {
  MaskForm form;
  form.integers = GENERATE(false, true);
  form.cap = GENERATE(1, 2, 3, 4);
  form.keeps = form.cap == 2 || form.cap == 3;
  GraphBuilder g = start();
  const Routing routing = route_samples(g);
  g.output(MaskBuilder(g, routing, form).output(routing.x));
  CHECK(test::find_op(check_whole(g), "MoERoute").attrs.i("capacity") == kRoom);
}

TEST_CASE("one expert a token by a mask", "[experts]") {
  MaskForm form;
  form.one = true;
  form.place = GENERATE(0, 3);
  GraphBuilder g = start();
  const std::string x = g.input("x", {"batch", kTokens, kWidth});
  const std::string scores =
      g.node("Softmax", {g.node("MatMul", {x, g.weight("gate.weight", {kWidth, kExperts}, 2)})});
  const Routing routing{x, g.node("ReduceMax", {scores}, {{"axes", Ints{-1}}, {"keepdims", 0}}),
                        g.node("ArgMax", {scores}, {{"axis", -1}, {"keepdims", 0}})};
  g.output(MaskBuilder(g, routing, form).output(x));
  check_whole(g);
}

TEST_CASE("pairs that share a place they should not have keep their masks", "[experts]") {
  MaskForm form;
  form.cap = GENERATE(1, 2, 3);  // without masking those pairs
  form.wrong = form.cap == 1 ? 6 : 0;
  GraphBuilder g = start();
  const Routing routing = route_samples(g);
  g.output(MaskBuilder(g, routing, form).output(routing.x));
  const ir::Model model = std::move(check(g).canonical);
  for (const char* kind : {"GroupedLinear", "MoECombine", "MoEDispatch"})
    CHECK(count_ops(model, kind) == 0);
}

TEST_CASE("masks of something else stay masks", "[experts]") {
  MaskForm form;
  form.keeps = true;
  form.choices_first = GENERATE(false, true);
  form.wrong = GENERATE(1, 2, 3, 4, 5);
  GraphBuilder g = start();
  const Routing routing = route_samples(g);
  g.output(MaskBuilder(g, routing, form).output(routing.x));
  const ir::Model model = std::move(check(g).canonical);
  CHECK(count_ops(model, "GroupedLinear") == 0);
  CHECK(count_ops(model, "MoECombine") == (form.wrong == 3 ? 1 : 0));
  CHECK(count_ops(model, "MoEDispatch") == (form.wrong == 4 ? 1 : 0));
}
