// Every diagnostic of the passes, as users see it.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "cli/compile_model.h"
#include "codegen/lower.h"
#include "ops/op.h"
#include "passes/pipeline.h"
#include "tests/compiler/golden.h"

using namespace piper;

namespace {

// y[B, 4] = x - mean of x over the samples, times a parameter: samples mix.
ir::Model coupled_model(int64_t axis) {
  ir::Model m;
  const ir::TensorType rows{ir::DType::kF32, {ir::Dim::batch_size(), 4}};
  const ir::ValueId x = m.add_value("x", rows, ir::ValueKind::kInput);
  m.inputs.push_back(x);
  const ir::ValueId w = m.add_value("w", {ir::DType::kF32, {4}}, ir::ValueKind::kParameter);
  m.value(w).param = ir::ParamId(0);
  ir::Parameter p;
  p.name = "w";
  p.value = w;
  p.type = m.value(w).type;
  p.initializer = "w";
  m.params.push_back(p);
  ir::Op mean;
  mean.kind = "ReduceMean";
  mean.name = mean.path = "mean";
  mean.inputs = {x};
  mean.attrs = {{"axes", std::vector<int64_t>{axis}}, {"keepdims", int64_t{1}}};
  const ir::ValueId average = ops::append_op(m, mean)->front();
  ir::Op sub;
  sub.kind = "Sub";
  sub.name = sub.path = "sub";
  sub.inputs = {x, average};
  const ir::ValueId centred = ops::append_op(m, sub)->front();
  ir::Op mul;
  mul.kind = "Mul";
  mul.name = mul.path = "scale";
  mul.inputs = {centred, w};
  m.outputs.push_back(ops::append_op(m, mul)->front());
  return m;
}

ir::Strategy plain_strategy(const ir::Model& model, int64_t microbatches) {
  ir::Strategy s;
  s.split = ir::Split{microbatches, "mb", {}};
  s.train.batch = 4;
  ir::LossTerm loss;
  loss.kind = ir::LossTerm::Kind::kMse;
  loss.output = model.value(model.outputs[0]).name;
  loss.target = "y";
  s.train.loss.push_back(loss);
  return s;
}

}  // namespace

TEST_CASE("a wrong strategy is refused with a message that names its cause") {
  const auto cases = testing::golden_cases("tests/golden/errors");
  CHECK(cases.size() >= 20);
  for (const testing::GoldenCase& c : cases) {
    INFO(c.path);
    support::SourceMap sources;
    support::Diagnostics diagnostics(sources);
    cli::CompileOptions options;
    options.sets = c.sets;
    CHECK_FALSE(cli::compile(c.model, c.path, options, diagnostics).has_value());
    CHECK(diagnostics.has_errors());
    CHECK(testing::compare_golden(c, diagnostics.render()) == "");
  }
}

TEST_CASE("an operation that mixes samples forbids cutting the batch") {
  support::SourceMap sources;
  for (int64_t microbatches : {1, 2}) {
    support::Diagnostics diagnostics(sources);
    ir::Model model = coupled_model(0);
    const ir::Strategy strategy = plain_strategy(model, microbatches);
    const bool ran = passes::run_passes(std::move(model), strategy, diagnostics).has_value();
    CHECK(ran == (microbatches == 1));
    CHECK((diagnostics.render().find("E0507") != std::string::npos) == (microbatches == 2));
  }
  support::Diagnostics diagnostics(sources);
  ir::Model model = coupled_model(1);  // the mean of each sample's own features
  const ir::Strategy strategy = plain_strategy(model, 2);
  CHECK(passes::run_passes(std::move(model), strategy, diagnostics).has_value());
}

TEST_CASE("an operation without a kernel is named when the plan is made") {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  ir::Model model = coupled_model(1);
  const ir::Strategy strategy = plain_strategy(model, 1);
  auto dag = passes::run_passes(std::move(model), strategy, diagnostics);
  REQUIRE(dag.has_value());
  dag->model.ops[dag->chunks[0].forward[0].index()].kind = "Unheard";
  codegen::lower(*dag, strategy, "cpu", diagnostics);
  CHECK(diagnostics.render().find("error[E0513]: operation `Unheard` has no kernel") != std::string::npos);
}
