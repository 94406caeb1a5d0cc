// Scalars that a model computes as its own loss, taken apart; and the loss `mean(…)` against one device.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "ops/op.h"
#include "passes/pipeline.h"
#include "passes/scalar_loss.h"

using namespace piper;
using ir::DType;
using ir::Shape;
using ir::ValueId;
using passes::ScalarTerm;

namespace {

// logits [B, 5] = x [B, 4] w, labels [B], and ops on top of them.
struct Graph {
  ir::Model model;
  ValueId x, labels, w, logits;

  Graph() {
    x = model.add_value("x", {DType::kF32, {ir::Dim(0, 1), ir::Dim(4)}}, ir::ValueKind::kInput);
    labels = model.add_value("labels", {DType::kI64, {ir::Dim(0, 1)}}, ir::ValueKind::kInput);
    model.inputs = {x, labels};
    w = model.add_value("w", {DType::kF32, {ir::Dim(4), ir::Dim(5)}}, ir::ValueKind::kParameter);
    ir::Parameter p;
    p.name = "w";
    p.value = w;
    p.type = model.value(w).type;
    model.value(w).param = ir::ParamId(0);
    model.params.push_back(p);
    logits = add("MatMul", {x, w});
  }
  ValueId add(const char* kind, std::vector<ValueId> inputs, ir::Attrs attrs = {}) {
    ir::Op op;
    op.kind = kind;
    op.name = op.path = fmt::format("{}{}", kind, model.ops.size());
    op.inputs = std::move(inputs);
    op.attrs = std::move(attrs);
    auto made = ops::append_op(model, op);
    REQUIRE(made.has_value());
    return made->front();
  }
  ValueId number(float value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return model.add_constant(fmt::format("c{}", model.values.size()), {DType::kF32, {}}, bytes);
  }
  ValueId reduce(const char* kind, ValueId v) {
    std::vector<int64_t> axes;
    for (size_t i = 0; i < model.value(v).type.shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
    return add(kind, {v}, {{"axes", axes}, {"keepdims", int64_t{0}}});
  }
  ValueId cross_entropy(int64_t ignore_sum = -100, int64_t ignore_count = -100) {
    const ValueId sum = add("CrossEntropyLoss", {logits, labels},
                            {{"class_dim", int64_t{1}}, {"ignore_index", ignore_sum}, {"label_smoothing", 0.0}});
    const ValueId count = add("CountValid", {labels}, {{"ignore_index", ignore_count}});
    const ValueId mean = add("Cast", {add("Div", {sum, count})}, {{"to", std::string("f32")}});
    return add("Reshape", {mean}, {{"shape", Shape{}}});
  }
};

}  // namespace

TEST_CASE("a weighted sum of means, cross-entropies and ratios is taken apart") {
  Graph g;
  const ValueId square = g.add("Mul", {g.logits, g.logits});
  const ValueId mean = g.add("Mul", {g.reduce("ReduceMean", square), g.number(0.25f)});
  const ValueId seen = g.add("Cast", {g.add("Not", {g.add("Equal", {g.labels, g.labels})})}, {{"to", std::string("f32")}});
  const ValueId ratio = g.add("Div", {g.reduce("ReduceSum", square), g.reduce("ReduceSum", seen)});
  const ValueId total = g.add("Sub", {g.add("Add", {g.cross_entropy(), mean}), g.add("Div", {ratio, g.number(4)})});
  const passes::ScalarLoss loss = passes::take_apart(g.model, total);
  CHECK_FALSE(loss.coupled.valid());
  REQUIRE(loss.terms.size() == 3);
  CHECK(loss.terms[0].kind == ScalarTerm::Kind::kCrossEntropy);
  CHECK(loss.terms[0].weight == 1);
  CHECK(loss.terms[0].value == g.logits);
  CHECK(loss.terms[1].kind == ScalarTerm::Kind::kMean);
  CHECK(loss.terms[1].weight == 0.25);
  CHECK(loss.terms[1].value == square);
  CHECK(loss.terms[2].kind == ScalarTerm::Kind::kRatio);
  CHECK(loss.terms[2].weight == -0.25);
  CHECK(loss.terms[2].divisor == seen);
}

TEST_CASE("what combines samples in another way is named") {
  Graph g;
  auto coupled = [&](ValueId v) {
    const passes::ScalarLoss loss = passes::take_apart(g.model, v);
    return loss.coupled.valid() ? g.model.op(loss.coupled).kind : std::string();
  };
  CHECK(coupled(g.reduce("ReduceSum", g.logits)) == "ReduceSum");
  CHECK(coupled(g.reduce("ReduceMax", g.logits)) == "ReduceMax");
  const ValueId mean = g.reduce("ReduceMean", g.logits);
  CHECK(coupled(g.add("Mul", {mean, mean})) == "Mul");
  CHECK(coupled(g.add("Sqrt", {mean})) == "Sqrt");
  // The divisor depends on the weights, or counts other targets than the sum.
  CHECK(coupled(g.add("Div", {g.reduce("ReduceSum", g.logits), g.reduce("ReduceSum", g.logits)})) == "Div");
  CHECK(coupled(g.cross_entropy(-100, 0)) == "Div");
}

TEST_CASE("a scalar of the weights alone is the same for every sample") {
  Graph g;
  const passes::ScalarLoss loss = passes::take_apart(g.model, g.reduce("ReduceSum", g.add("Mul", {g.w, g.w})));
  CHECK_FALSE(loss.coupled.valid());
  REQUIRE(loss.terms.size() == 1);
  CHECK(loss.terms[0].kind == ScalarTerm::Kind::kMean);
}

TEST_CASE("the only float output, a scalar, is the loss; a sum over samples forbids cutting the batch") {
  for (const bool sum : {false, true}) {
    for (const bool cut : {false, true}) {
      Graph g;
      g.model.outputs = {sum ? g.reduce("ReduceSum", g.logits) : g.cross_entropy()};
      ir::Strategy strategy;
      if (cut) strategy.split = ir::Split{2, "mb", {}};
      strategy.train.batch = 4;
      support::SourceMap sources;
      support::Diagnostics diagnostics(sources);
      const auto dag = passes::run_passes(g.model, strategy, diagnostics);
      INFO(diagnostics.render());
      CHECK(dag.has_value() == !(sum && cut));
      if (sum && cut) {
        CHECK(diagnostics.render().find("error[E0507]") != std::string::npos);
        CHECK(diagnostics.render().find("ReduceSum") != std::string::npos);
      }
    }
  }
}

TEST_CASE("classes along the batch are refused") {
  Graph g;
  g.model.outputs = {g.add("Transpose", {g.logits}, {{"perm", std::vector<int64_t>{1, 0}}})};
  ir::Strategy strategy;
  strategy.train.batch = 4;
  ir::LossTerm term;
  term.output = g.model.value(g.model.outputs[0]).name;
  term.target = "t";
  strategy.train.loss = {term};
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  CHECK_FALSE(passes::run_passes(g.model, strategy, diagnostics).has_value());
  CHECK(diagnostics.render().find("error[E0514]") != std::string::npos);
}

TEST_CASE("a target whose samples are not in dim 0 of the output has them there in the data") {
  struct Case {
    std::vector<ir::Dim> flat;  // of the logits [B, 5]
    std::vector<int64_t> perm;
    const char *output, *data;
  };
  const ir::Dim B = ir::Dim::batch_size();
  const std::vector<Case> cases = {{{ir::Dim(0, 5)}, {}, "f32[5B]", "f32[B, 5]"},
                                   {{B, 5}, {1, 0}, "f32[5, B]", "f32[B, 5]"},
                                   {{B, 1, 5}, {2, 0, 1}, "f32[5, B, 1]", "f32[B, 5, 1]"},
                                   {{1, ir::Dim(0, 5)}, {}, "f32[1, 5B]", "f32[B, 1, 5]"}};
  for (const Case& c : cases) {
    INFO(c.output);
    Graph g;
    ValueId output = g.add("Reshape", {g.logits}, {{"shape", Shape(c.flat)}});
    if (!c.perm.empty()) output = g.add("Transpose", {output}, {{"perm", c.perm}});
    CHECK(to_string(g.model.value(output).type) == c.output);
    g.model.outputs = {output};
    ir::Strategy strategy;
    strategy.train.batch = 4;
    strategy.split = ir::Split{2, "mb", {}};
    ir::LossTerm term;
    term.kind = ir::LossTerm::Kind::kMse;
    term.output = g.model.value(output).name;
    term.target = "t";
    strategy.train.loss = {term};
    support::SourceMap sources;
    support::Diagnostics diagnostics(sources);
    const auto dag = passes::run_passes(g.model, strategy, diagnostics);
    INFO(diagnostics.render());
    REQUIRE(dag.has_value());
    for (const ir::Value& value : dag->model.values) {
      if (value.name == "t") CHECK(to_string(value.type) == c.data);
    }
  }
}
