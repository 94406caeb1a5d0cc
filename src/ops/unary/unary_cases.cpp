#include "ops/case.h"

#include <cmath>

namespace piper::ops {

namespace {

using ir::DType;

OpCase on(std::string name, std::string op, std::vector<int64_t> shape, double low = -2, double high = 2) {
  return {std::move(name), std::move(op), {}, {{.shape = std::move(shape), .low = low, .high = high}}};
}

OpCase known(std::string name, std::string op, std::vector<double> x, std::vector<double> y, bool gradient = true) {
  const int64_t n = static_cast<int64_t>(x.size());
  return {std::move(name), std::move(op), {}, {{.shape = {n}, .gradient = gradient, .values = std::move(x)}}, std::move(y)};
}

OpCase integers(std::string name, std::string op, DType dtype, std::vector<double> x, std::vector<double> y) {
  OpCase c = known(std::move(name), std::move(op), std::move(x), std::move(y), false);
  c.inputs[0].dtype = dtype;
  return c;
}

// The fused gradient against the derivative written out: f'(x) * dy.
OpCase gradient(std::string fn, double saved, double dy, double dx) {
  return {"the derivative of " + fn, "UnaryGrad", {{"fn", fn}},
          {{.shape = {1}, .values = {saved}}, {.shape = {1}, .values = {dy}}}, {dx}};
}

}  // namespace

std::vector<OpCase> unary_cases() {
  std::vector<OpCase> cases;
  struct Range {
    const char* op;
    double low, high;
    double at, value;
  };
  const Range kRanges[] = {
      {"Abs", 0.1, 2, -1.5, 1.5},
      {"Cos", -4, 4, 1, std::cos(1.0)},
      {"Erf", -2, 2, 0.5, 0.5204998778130465},
      {"Exp", -3, 3, 1, std::exp(1.0)},
      {"Gelu", -3, 3, 1, 0.8413447460685429},
      {"Log", 0.2, 5, 2, 0.6931471805599453},
      {"Neg", -2, 2, 3, -3},
      {"Reciprocal", 0.3, 3, 4, 0.25},
      {"Relu", 0.1, 2, -1, 0},
      {"Sigmoid", -6, 6, 1, 0.7310585786300049},
      {"Silu", -6, 6, 1, 0.7310585786300049},
      {"Sin", -4, 4, 1, std::sin(1.0)},
      {"Softplus", -6, 6, 0, 0.6931471805599453},
      {"Sqrt", 0.1, 4, 9, 3},
      {"Tanh", -3, 3, 0.3, 0.2913126124515909},
  };
  for (const Range& r : kRanges) {
    const std::string op = r.op;
    cases.push_back(on(op + " of a scalar", op, {}, r.low, r.high));
    cases.push_back(on(op + " of an odd shape", op, {3, 1, 7}, r.low, r.high));
    cases.push_back(on(op + " longer than a piece", op, {67, 67}, r.low, r.high));
    cases.back().inputs[0].gradient = false;
    const bool kink = op == "Abs" || op == "Relu";
    cases.push_back(known(op + " at a known point", op, {r.at}, {r.value}, !kink));
    cases.push_back(on(op + " of nothing", op, {0, 3}, r.low, r.high));
  }
  OpCase tanh_form = on("Gelu in its tanh form", "Gelu", {5, 9}, -3, 3);
  tanh_form.attrs.set("approximate", std::string("tanh"));
  cases.push_back(tanh_form);
  OpCase tanh_value = known("Gelu in its tanh form at a known point", "Gelu", {1}, {0.8411919906082768});
  tanh_value.attrs.set("approximate", std::string("tanh"));
  cases.push_back(tanh_value);
  cases.push_back(on("Abs of negative numbers", "Abs", {11}, -2, -0.1));
  cases.push_back(on("Relu of negative numbers", "Relu", {11}, -2, -0.1));
  // Between whole numbers, where the derivative is 0, and at halves, which go to the even neighbour.
  for (const std::string op : {"Ceil", "Floor", "Round"}) {
    cases.push_back(on(op + " of a scalar", op, {}, 0.1, 0.4));
    cases.push_back(on(op + " of an odd shape", op, {3, 1, 7}, -1.4, -1.1));
    cases.push_back(on(op + " longer than a piece", op, {67, 67}, -9, 9));
    cases.back().inputs[0].gradient = false;
    cases.push_back(on(op + " of nothing", op, {0, 3}));
  }
  const std::vector<double> halves = {-2.5, -1.5, -0.2, 0.5, 1.5, 2.7, 3};
  cases.push_back(known("Ceil at halves", "Ceil", halves, {-2, -1, 0, 1, 2, 3, 3}, false));
  cases.push_back(known("Floor at halves", "Floor", halves, {-3, -2, -1, 0, 1, 2, 3}, false));
  cases.push_back(known("Round at halves", "Round", halves, {-2, -2, 0, 0, 2, 3, 3}, false));
  cases.push_back(integers("Abs of i64", "Abs", DType::kI64, {-3, 0, 4}, {3, 0, 4}));
  cases.push_back(integers("Neg of i64", "Neg", DType::kI64, {-3, 0, 4}, {3, 0, -4}));
  cases.push_back(integers("Neg of i32", "Neg", DType::kI32, {-3, 0, 4}, {3, 0, -4}));
  cases.push_back(integers("Not", "Not", DType::kBool, {0, 1, 1}, {1, 0, 0}));
  cases.push_back({"Not of a matrix", "Not", {}, {{.dtype = DType::kBool, .shape = {3, 5}, .low = 0, .high = 2}}});
  cases.push_back(integers("Not of one", "Not", DType::kBool, {1}, {0}));
  cases.push_back({"Not of nothing", "Not", {}, {{.dtype = DType::kBool, .shape = {0}}}});
  cases.push_back(known("IsNaN", "IsNaN", {1, NAN, INFINITY}, {0, 1, 0}, false));
  cases.push_back(known("IsNaN of one", "IsNaN", {NAN}, {1}, false));
  cases.push_back(known("IsNaN without any", "IsNaN", {0, -INFINITY, 3}, {0, 0, 0}, false));
  cases.push_back(on("IsNaN of a matrix", "IsNaN", {3, 5}));
  cases.push_back(gradient("Abs", 0, 3, 0));
  cases.push_back(gradient("Relu", 0, 3, 0));
  cases.push_back(gradient("Tanh", 0.5, 2, 1.5));
  cases.push_back(gradient("Sqrt", 2, 3, 0.75));
  cases.push_back(gradient("Log", 4, 2, 0.5));
  return cases;
}

}  // namespace piper::ops
