// The interpreter over a model, gradients that depend on the batch size, and costs.

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/ops/harness.h"

namespace piper::ops::test {

namespace {

using ir::DType;
const ir::Dim B = ir::Dim::batch_size();

ValueId append(ir::Model& model, std::string kind, std::vector<ValueId> inputs, ir::Attrs attrs = {}) {
  ir::Op op;
  op.kind = std::move(kind);
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  auto outputs = append_op(model, std::move(op));
  REQUIRE(outputs.has_value());
  return outputs->front();
}

Tensor of(std::vector<int64_t> shape, std::vector<double> values) {
  Tensor tensor = make_tensor(DType::kF64, std::move(shape));
  for (size_t i = 0; i < values.size(); i++) set_number(tensor, static_cast<int64_t>(i), values[i]);
  return tensor;
}

}  // namespace

TEST_CASE("a model is evaluated for any batch size") {
  ir::Model model;
  const ValueId x = model.add_value("x", {DType::kF64, {B, 2}}, ir::ValueKind::kInput);
  const Tensor half = of({}, {0.5});
  const ValueId c = model.add_constant("half", {DType::kF64, {}}, half.bytes);
  const ValueId y = append(model, "Mul", {append(model, "Exp", {x}), c});
  append(model, "Neg", {model.add_value("missing", {DType::kF64, {}}, ir::ValueKind::kInput)});
  const Tensor three = of({3, 2}, {0, 1, 2, 3, 4, 5});
  auto result = evaluate(model, {{x, three}}, std::span(&y, 1), 3);
  REQUIRE(result.has_value());
  CHECK(result->front().shape == std::vector<int64_t>{3, 2});
  CHECK(get_number(result->front(), 5) == Approx(std::exp(5.0) / 2));
  auto missing = evaluate(model, {}, std::span(&y, 1), 3);
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().message == "the value `x` is not given");
}

TEST_CASE("a value that is given is not computed again") {
  ir::Model model;
  const ValueId x = model.add_value("x", {DType::kF64, {}}, ir::ValueKind::kInput);
  const ValueId y = append(model, "Exp", {x}), z = append(model, "Neg", {y});
  auto result = evaluate(model, {{y, of({}, {4})}}, std::span(&z, 1));
  REQUIRE(result.has_value());
  CHECK(get_number(result->front(), 0) == -4);
}

TEST_CASE("the gradient of a mean over the samples divides by their number") {
  ir::Model model;
  const ValueId x = model.add_value("x", {DType::kF64, {B, 2}}, ir::ValueKind::kInput);
  const std::vector<int64_t> all = {0, 1};
  const ValueId y = append(model, "ReduceMean", {x}, {{"axes", all}, {"keepdims", int64_t{0}}});
  const ValueId dy = model.add_value("dy", model.value(y).type, ir::ValueKind::kInput);
  RuleRunner rule(model, ir::OpId(0), dy, {true});
  find_op("ReduceMean")->gradient(rule);
  const ValueId dx = rule.gradient(0);
  for (int64_t batch : {1, 3, 7}) {
    auto result = evaluate(model, {{x, make_tensor(DType::kF64, {batch, 2})}, {dy, of({}, {6})}}, std::span(&dx, 1), batch);
    REQUIRE(result.has_value());
    CHECK(result->front().shape == std::vector<int64_t>{batch, 2});
    CHECK(get_number(result->front(), 0) == Approx(6.0 / static_cast<double>(2 * batch)));
  }
}

TEST_CASE("the cost of an op follows the batch size") {
  ir::Model model;
  const ValueId x = model.add_value("x", {DType::kF32, {B, 10}}, ir::ValueKind::kInput);
  append(model, "Exp", {x});
  CHECK(flops_of(model, model.ops[0], 4) == 40);
}

TEST_CASE("shapes broadcast as in numpy") {
  CHECK(*broadcast({B, 1, 3}, {4, 1}) == ir::Shape{B, 4, 3});
  CHECK(*broadcast({}, {2}) == ir::Shape{2});
  CHECK_FALSE(broadcast({B}, {2}).has_value());
  CHECK(normalize_dim(-1, 3) == 2);
  CHECK(normalize_dim(3, 3) == -1);
  CHECK(normalize_dim(-4, 3) == -1);
}

}  // namespace piper::ops::test
