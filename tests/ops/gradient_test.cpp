// Every gradient rule, executed, against central differences in f64; and what differences cannot see: ties and kinks.

#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <random>

#include "tests/ops/harness.h"

namespace piper::ops::test {

namespace {

using ir::DType;

double loss(const OpCase& c, const std::vector<Tensor>& inputs, const Tensor& seed) {
  const Tensor y = run_case(c, inputs)[0];
  double sum = 0;
  for (int64_t i = 0; i < y.elements(); i++) sum += get_number(seed, i) * get_number(y, i);
  return sum;
}

struct Gradients {
  std::vector<Tensor> of_input;  // empty where not wanted
};

// The gradients of sum(seed * output 0) by the op's rule.
Gradients by_rule(const OpCase& c, const std::vector<Tensor>& inputs, const Tensor& seed, const std::vector<bool>& wanted) {
  CaseModel m = model_of(c, inputs);
  const ValueId seed_id = m.model.add_value("seed", type_of(seed), ir::ValueKind::kInput);
  RuleRunner rule(m.model, m.op, seed_id, wanted);
  find_op(c.op)->gradient(rule);
  std::map<ValueId, Tensor> given{{seed_id, seed}};
  for (size_t i = 0; i < inputs.size(); i++) {
    if (m.inputs[i].valid()) given[m.inputs[i]] = inputs[i];
  }
  Gradients result{std::vector<Tensor>(inputs.size())};
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!wanted[i]) continue;
    INFO("input " << i << " gets no gradient");
    REQUIRE(rule.gradient(i).valid());
    const ValueId id = rule.gradient(i);
    auto values = evaluate(m.model, given, std::span(&id, 1), 1, kContext);
    INFO((values ? "" : values.error().message));
    REQUIRE(values.has_value());
    result.of_input[i] = std::move(values->front());
  }
  return result;
}

Tensor seed_for(const OpCase& c, const std::vector<Tensor>& inputs) {
  const ir::TensorType type = output_types(c, inputs)[0];
  Tensor seed = make_tensor(type.dtype, ir::at(type.shape, 1));
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int64_t i = 0; i < seed.elements(); i++) set_number(seed, i, uniform(random));
  return seed;
}

// At most about 60 elements of an input are moved.
void check_by_differences(const OpCase& c, std::vector<Tensor> inputs, size_t i, const Tensor& seed, const Tensor& gradient) {
  REQUIRE(gradient.shape == inputs[i].shape);
  double largest = 0;
  for (int64_t e = 0; e < gradient.elements(); e++) largest = std::max(largest, std::abs(get_number(gradient, e)));
  const int64_t stride = std::max<int64_t>(1, gradient.elements() / 61);
  for (int64_t e = 0; e < gradient.elements(); e += stride) {
    constexpr double h = 1e-5;
    const double x = get_number(inputs[i], e);
    set_number(inputs[i], e, x + h);
    const double up = loss(c, inputs, seed);
    set_number(inputs[i], e, x - h);
    const double down = loss(c, inputs, seed);
    set_number(inputs[i], e, x);
    const double expected = (up - down) / (2 * h);
    INFO("input " << i << " element " << e << ": rule " << get_number(gradient, e) << ", differences " << expected);
    CHECK(std::abs(get_number(gradient, e) - expected) <= c.gradient_tolerance * std::max(1.0, largest));
  }
}

std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> all;
  for (int64_t i = 0; i < tensor.elements(); i++) all.push_back(get_number(tensor, i));
  return all;
}

// The gradient of input i of the op for a seed of ones (or `scale`).
std::vector<double> gradient_of(const OpCase& c, size_t i, double scale = 1) {
  const std::vector<Tensor> inputs = inputs_of(c, DType::kF64);
  Tensor seed = seed_for(c, inputs);
  for (int64_t k = 0; k < seed.elements(); k++) set_number(seed, k, scale);
  std::vector<bool> wanted(inputs.size(), false);
  wanted[i] = true;
  return numbers(by_rule(c, inputs, seed, wanted).of_input[i]);
}

using Values = std::vector<double>;

}  // namespace

TEST_CASE("gradient rules agree with central differences") {
  std::map<std::string, int> checked;
  for (const OpCase& c : all_cases()) {
    if (find_op(c.op)->gradient == nullptr) continue;
    INFO(c.op << ": " << c.name);
    const std::vector<Tensor> inputs = inputs_of(c, DType::kF64);
    if (output_types(c, inputs)[0].dtype != DType::kF64) continue;
    std::vector<bool> wanted;
    for (const CaseInput& input : c.inputs) wanted.push_back(input.present && input.gradient && input.dtype == DType::kF64);
    const Tensor seed = seed_for(c, inputs);
    const Gradients all = by_rule(c, inputs, seed, wanted);
    for (size_t i = 0; i < inputs.size(); i++) {
      if (!wanted[i]) continue;
      check_by_differences(c, inputs, i, seed, all.of_input[i]);
      checked[c.op]++;
      // The same when nobody else needs one: rules take shortcuts then.
      std::vector<bool> alone(inputs.size(), false);
      alone[i] = true;
      const Values together = numbers(all.of_input[i]), single = numbers(by_rule(c, inputs, seed, alone).of_input[i]);
      for (size_t e = 0; e < single.size(); e++) CHECK(single[e] == Approx(together[e]).margin(1e-12));
    }
  }
  for (const OpDef* def : all_ops()) {
    INFO(def->name << " has a gradient that no case checks");
    if (def->gradient != nullptr) CHECK(checked[def->name] > 0);
  }
}

TEST_CASE("equal elements share the gradient of an extremum") {
  OpCase c{"", "Max", {}, {{.shape = {3}, .values = {1, 2, 3}}, {.shape = {3}, .values = {1, 5, 0}}}};
  CHECK(gradient_of(c, 0) == Values{0.5, 0, 1});
  CHECK(gradient_of(c, 1) == Values{0.5, 1, 0});
  c.op = "Min";
  CHECK(gradient_of(c, 0) == Values{0.5, 1, 0});
  CHECK(gradient_of(c, 1) == Values{0.5, 0, 1});
  const std::vector<int64_t> axis = {1};
  OpCase reduce{"", "ReduceMax", {{"axes", axis}, {"keepdims", int64_t{0}}}, {{.shape = {2, 4}, .values = {3, 3, 1, 3, 0, 1, 2, 3}}}};
  CHECK(gradient_of(reduce, 0, 3) == Values{1, 1, 0, 1, 0, 0, 0, 3});
}

TEST_CASE("the first of equal elements takes the gradient of a pooling's maximum") {
  using Ints = std::vector<int64_t>;
  const OpCase c{"",
                 "MaxPool",
                 {{"kernel", Ints{2}}, {"strides", Ints{1}}, {"dilations", Ints{1}}, {"pads", Ints{0, 0}}},
                 {{.shape = {1, 1, 4}, .values = {3, 3, 1, NAN}}}};
  CHECK(gradient_of(c, 0) == Values{1, 1, 0, 1});
}

TEST_CASE("functions with a kink have the derivative 0 there") {
  CHECK(gradient_of({"", "Abs", {}, {{.shape = {3}, .values = {-1, 0, 1}}}}, 0) == Values{-1, 0, 1});
  CHECK(gradient_of({"", "Relu", {}, {{.shape = {3}, .values = {-1, 0, 1}}}}, 0) == Values{0, 0, 1});
}

TEST_CASE("a power's gradient is finite where the power is smooth") {
  OpCase c{"", "Pow", {}, {{.shape = {2}, .values = {0, -2}}, {.shape = {}, .values = {0}}}};
  CHECK(gradient_of(c, 0) == Values{0, 0});
  c.inputs[1].values = {2};
  CHECK(gradient_of(c, 0) == Values{0, -4});
  c.inputs[0] = {.shape = {2}, .values = {0, 1}};
  CHECK(gradient_of(c, 1) == Values{0});
}

TEST_CASE("the branch that is not taken gets no gradient, however large it is") {
  const OpCase c{"", "Where", {}, {{.dtype = DType::kBool, .shape = {2}, .values = {1, 0}}, {.shape = {2}, .values = {1, INFINITY}}, {.shape = {2}, .values = {INFINITY, 2}}}};
  CHECK(gradient_of(c, 1) == Values{1, 0});
  CHECK(gradient_of(c, 2) == Values{0, 1});
}

TEST_CASE("dropout's gradient has the mask of the forward pass") {
  const OpCase c{"", "Dropout", {{"ratio", 0.5}, {"key", int64_t{1}}, {"outer", int64_t{1}}, {"inner", int64_t{64}}}, {{.shape = {4, 64}, .low = 1, .high = 2}}};
  const std::vector<Tensor> inputs = inputs_of(c, DType::kF64);
  Tensor seed = inputs[0];
  const Tensor y = run_kernel(c.op, c.attrs, {&inputs[0]}, {type_of(inputs[0])}, 1, kContext)->front();
  const Tensor dx = by_rule(c, inputs, seed, {true}).of_input[0];
  CHECK(numbers(dx) == numbers(y));
}

}  // namespace piper::ops::test
