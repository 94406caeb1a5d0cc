// Operators made of others when they are imported: the values of what is emitted, on both sides of every kink.

#include <catch2/catch.hpp>

#include <cmath>
#include <functional>

#include "tests/ops/fake_import.h"

namespace piper::ops::test {

namespace {

const Dim B = Dim::batch_size();
const std::vector<double> kPoints = {-800, -3.5, -1, -0.4, 0, 0.3, 1, 2.5, 700};

void check(const std::string& type, Attrs attrs, const std::function<double(double)>& expected, int opset = 20,
           std::vector<double> points = kPoints) {
  INFO(type);
  FakeImport op(type, opset, std::move(attrs), {FakeImport::tensor({static_cast<int64_t>(points.size())})});
  REQUIRE(op.import().empty());
  const std::vector<double> y = op.values({{0, points}});
  REQUIRE(y.size() == points.size());
  for (size_t i = 0; i < points.size(); i++) {
    INFO("at " << points[i]);
    CHECK(y[i] == Approx(expected(points[i])).margin(1e-12));
  }
}

}  // namespace

TEST_CASE("activations that are made of others") {
  check("Elu", {{"alpha", 2.0}}, [](double x) { return x > 0 ? x : 2 * std::expm1(x); });
  check("Selu", {}, [](double x) { return 1.05070102214813232 * (x > 0 ? x : 1.67326319217681885 * std::expm1(x)); });
  check("Celu", {{"alpha", 0.5}}, [](double x) { return std::max(0.0, x) + std::min(0.0, 0.5 * std::expm1(x / 0.5)); });
  check("LeakyRelu", {}, [](double x) { return x < 0 ? 0.01 * x : x; });
  check("ThresholdedRelu", {{"alpha", 0.5}}, [](double x) { return x > 0.5 ? x : 0; });
  check("Shrink", {{"lambd", 0.5}, {"bias", 0.25}}, [](double x) { return x < -0.5 ? x + 0.25 : x > 0.5 ? x - 0.25 : 0; });
  check("HardSigmoid", {}, [](double x) { return std::clamp(0.2 * x + 0.5, 0.0, 1.0); });
  check("HardSwish", {}, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); });
  check("Mish", {}, [](double x) { return x * std::tanh(x > 30 ? x : std::log1p(std::exp(x))); });
  check("Softsign", {}, [](double x) { return x / (1 + std::abs(x)); });
  check("Sign", {}, [](double x) { return (x > 0) - (x < 0); });
  const std::vector<double> small = {-2, -0.5, 0, 0.5, 1.4};
  check("Tan", {}, [](double x) { return std::tan(x); }, 20, small);
  check("Sinh", {}, [](double x) { return std::sinh(x); }, 20, small);
  check("Cosh", {}, [](double x) { return std::cosh(x); }, 20, small);
}

TEST_CASE("PRelu has a slope for each channel") {
  FakeImport op("PRelu", 16, {}, {FakeImport::tensor({B, 2}), FakeImport::tensor({2})});
  REQUIRE(op.import().empty());
  CHECK(op.values({{0, {-1, -1, 2, 2}}, {1, {0.5, 3}}}, 0, 2) == std::vector<double>{-0.5, -3, 2, 2});
}

TEST_CASE("normalisation over the groups of a sample") {
  const std::vector<double> x = {1, 3, 5, 7, 2, 2, 4, 8};  // one sample, 4 channels of 2
  const Attrs two{{"num_groups", int64_t{2}}, {"epsilon", 0.0}};
  const double a = 1 / std::sqrt(5.0), b = 1 / std::sqrt(6.0);
  // From opset 21 on a scale for each channel, before one for each group.
  FakeImport channels("GroupNormalization", 21, two, {FakeImport::tensor({B, 4, 2}), FakeImport::tensor({4}), FakeImport::tensor({4})});
  REQUIRE(channels.import().empty());
  CHECK(channels.result().shape == ir::Shape{B, 4, 2});
  std::vector<double> expected = {-3 * a, -a, 2 * a, 6 * a, -2 * b + 1, -2 * b + 1, 0, 16 * b};
  std::vector<double> y = channels.values({{0, x}, {1, {1, 2, 1, 4}}, {2, {0, 0, 1, 0}}});
  for (size_t i = 0; i < 8; i++) CHECK(y[i] == Approx(expected[i]).margin(1e-12));
  FakeImport groups("GroupNormalization", 18, two, {FakeImport::tensor({B, 4, 2}), FakeImport::tensor({2}), FakeImport::tensor({2})});
  REQUIRE(groups.import().empty());
  expected = {-3 * a, -a, a, 3 * a, -4 * b + 1, -4 * b + 1, 1, 8 * b + 1};
  y = groups.values({{0, x}, {1, {1, 2}}, {2, {0, 1}}});
  for (size_t i = 0; i < 8; i++) CHECK(y[i] == Approx(expected[i]).margin(1e-12));
  FakeImport bad("GroupNormalization", 21, {{"num_groups", int64_t{3}}}, {FakeImport::tensor({B, 4, 2}), FakeImport::tensor({4}), FakeImport::tensor({4})});
  CHECK(bad.import().find("divide into 3 groups") != std::string::npos);
}

TEST_CASE("OneHot along any dim, with indices from the end and out of range") {
  for (const int64_t axis : {int64_t{-1}, int64_t{0}}) {
    FakeImport op("OneHot", 13, {{"axis", axis}},
                  {FakeImport::tensor({3}, ir::DType::kI64), FakeImport::number(3, ir::DType::kI64), FakeImport::tensor({2})});
    REQUIRE(op.import().empty());
    const std::vector<double> y = op.values({{0, {0, -1, 7}}, {2, {5, 9}}});
    if (axis < 0) CHECK(y == std::vector<double>{9, 5, 5, 5, 5, 9, 5, 5, 5});
    else CHECK(y == std::vector<double>{9, 5, 5, 5, 5, 5, 5, 9, 5});
  }
}

}  // namespace piper::ops::test
