#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape)}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
CaseInput count(double n) { return {.shape = {1}, .gradient = false, .values = {n}, .keep_f64 = true}; }
const ir::Attrs kAdd{{"accumulate", int64_t{1}}};

ir::Attrs filled(ir::Shape shape, double weight) {
  return {{"dtype", std::string("f64")}, {"shape", std::move(shape)}, {"weight", weight}};
}

}  // namespace

std::vector<OpCase> mse_cases() {
  return {
      {"by hand", "MseLoss", {}, {values({3}, {1, 2, 3}), values({3}, {1, 4, 0})}, {13}},
      {"equal", "MseLoss", {}, {values({2}, {5, 7}), values({2}, {5, 7})}, {0}},
      {"more than a block", "MseLoss", {}, {tensor({17, 257}), tensor({17, 257})}},
      {"no elements", "MseLoss", {}, {tensor({0, 3}), tensor({0, 3})}, {0}},
      {"accumulated", "MseLoss", kAdd, {tensor({3, 5}), tensor({3, 5})}},
      {"by hand", "MseGrad", {{"weight", 3.0}}, {values({2}, {1, 4}), values({2}, {0, 6}), count(6)}, {1, -2}},
      {"nothing counted", "MseGrad", {{"weight", 1.0}}, {values({2}, {1, 4}), values({2}, {0, 6}), count(0)}, {0, 0}},
      {"rows", "MseGrad", {{"weight", 0.5}}, {tensor({3, 5, 7}), tensor({3, 5, 7}), count(105)}},
      {"one element", "MseGrad", {{"weight", 1.0}}, {tensor({1}), tensor({1}), count(1)}},
      {"by hand", "MeanLoss", {}, {values({4}, {1, 2, 3, 4})}, {10}},
      {"one value", "MeanLoss", {}, {values({}, {7})}, {7}},
      {"more than a block", "MeanLoss", {}, {tensor({33, 131})}},
      {"accumulated", "MeanLoss", kAdd, {tensor({5, 3})}},
      {"by hand", "MeanLossGrad", filled({2}, 3), {count(6)}, {0.5, 0.5}},
      {"nothing counted", "MeanLossGrad", filled({3}, 3), {count(0)}, {0, 0, 0}},
      {"a single value", "MeanLossGrad", filled({}, 1), {count(1)}, {1}},
      {"rows", "MeanLossGrad", filled({3, 5}, 0.01), {count(15)}},
      {"matrix", "CountElements", {}, {tensor({3, 5})}, {15}},
      {"a single value", "CountElements", {}, {tensor({})}, {1}},
      {"of a shape", "CountElements", {{"shape", std::vector<int64_t>{3, 5}}}, {}, {15}},
      {"nothing", "CountElements", {}, {tensor({0, 7})}, {0}},
      {"accumulated", "CountElements", kAdd, {tensor({17})}},
  };
}

}  // namespace piper::ops
