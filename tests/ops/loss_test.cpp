// The gradients of the losses are those of weight * loss / count. The rule book of gradients does not cover them, as
// their seed is not an output's gradient but a count.

#include <catch2/catch.hpp>

#include <cmath>
#include <random>

#include "ops/evaluate.h"

namespace piper::ops {

namespace {

using ir::DType;

const ir::TensorType kSum{DType::kF64, {ir::Dim(1)}};

ir::TensorType type_of(const Tensor& x) { return {x.dtype, ir::Shape(x.shape.begin(), x.shape.end())}; }

Tensor random_tensor(std::vector<int64_t> shape, std::mt19937& random) {
  Tensor x = make_tensor(DType::kF64, std::move(shape));
  std::uniform_real_distribution<double> uniform(-2, 2);
  for (int64_t i = 0; i < x.elements(); i++) set_number(x, i, uniform(random));
  return x;
}

double number(const std::string& op, const ir::Attrs& attrs, const std::vector<const Tensor*>& inputs) {
  auto y = run_kernel(op, attrs, inputs, {kSum});
  REQUIRE(y.has_value());
  return get_number((*y)[0], 0);
}

// `grad` of (x, target, count) against differences of `loss` of (x, target).
void check(const std::string& loss, const std::string& grad, ir::Attrs attrs, Tensor x, const Tensor& target,
           double n) {
  const double weight = 0.7, h = 1e-6;
  attrs.set("weight", weight);
  Tensor count = make_tensor(DType::kF64, {1});
  set_number(count, 0, n);
  auto dx = run_kernel(grad, attrs, {&x, &target, &count}, {type_of(x)});
  REQUIRE(dx.has_value());
  double worst = 0;
  for (int64_t i = 0; i < x.elements(); i++) {
    double old = get_number(x, i);
    set_number(x, i, old + h);
    double above = number(loss, attrs, {&x, &target});
    set_number(x, i, old - h);
    double below = number(loss, attrs, {&x, &target});
    set_number(x, i, old);
    worst = std::max(worst, std::abs(weight * (above - below) / (2 * h) / n - get_number((*dx)[0], i)));
  }
  CHECK(worst < 1e-8);
}

}  // namespace

TEST_CASE("cross-entropy and its gradient agree", "[ops]") {
  std::mt19937 random(3);
  for (double smoothing : {0.0, 0.1}) {
    for (int64_t class_dim : {-1, 1}) {
      CAPTURE(smoothing, class_dim);
      Tensor x =
          random_tensor(class_dim == 1 ? std::vector<int64_t>{2, 7, 17} : std::vector<int64_t>{2, 17, 7}, random);
      Tensor target = make_tensor(DType::kI64, {2, 17});
      for (int64_t i = 0; i < 34; i++) set_number(target, i, static_cast<double>(i % 8));
      // Class 7 does not exist: it is what is ignored.
      ir::Attrs attrs{{"class_dim", class_dim}, {"label_smoothing", smoothing}, {"ignore_index", int64_t{7}}};
      double n = number("CountValid", attrs, {&target});
      CHECK(n == 30);
      check("CrossEntropyLoss", "CrossEntropyGrad", attrs, x, target, n);
    }
  }
}

TEST_CASE("squared error and its gradient agree", "[ops]") {
  std::mt19937 random(3);
  Tensor x = random_tensor({3, 17}, random), target = random_tensor({3, 17}, random);
  check("MseLoss", "MseGrad", {}, x, target, number("CountElements", {}, {&x}));
}

TEST_CASE("the gradient of a mean is weight / count", "[ops]") {
  std::mt19937 random(3);
  Tensor x = random_tensor({3, 5}, random), count = make_tensor(DType::kF64, {1});
  set_number(count, 0, number("CountElements", {}, {&x}));
  auto dx = run_kernel("MeanLossGrad", {{"weight", 3.0}, {"dtype", std::string("f64")}, {"shape", ir::Shape{3, 5}}},
                       {&count}, {type_of(x)});
  REQUIRE(dx.has_value());
  double before = number("MeanLoss", {}, {&x});
  for (int64_t i = 0; i < 15; i++) {
    CHECK(get_number((*dx)[0], i) == 0.2);
    set_number(x, i, get_number(x, i) + 1);
  }
  CHECK(number("MeanLoss", {}, {&x}) == Approx(before + 15));
}

}  // namespace piper::ops
