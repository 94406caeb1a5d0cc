#include <cmath>

#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape), .low = -4, .high = 4}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
ir::Attrs axis(int64_t a) { return {{"axis", a}}; }

// The same shapes for an op of one input and its gradient.
void add_shapes(std::vector<OpCase>& cases, const std::string& op) {
  struct Row {
    const char* name;
    int64_t axis;
    std::vector<int64_t> shape;
  };
  for (const Row& row : std::vector<Row>{{"last axis", -1, {3, 5, 33}},
                                         {"one element", -1, {5, 1}},
                                         {"middle axis", 1, {3, 7, 17}},
                                         {"first axis", 0, {5, 33}},
                                         {"long rows", -1, {2, 131}},
                                         {"scores of heads", -1, {2, 3, 17, 17}}}) {
    cases.push_back({row.name, op, axis(row.axis), {tensor(row.shape)}});
    cases.push_back({row.name, op + "Grad", axis(row.axis), {tensor(row.shape), tensor(row.shape)}});
  }
}

}  // namespace

std::vector<OpCase> softmax_cases() {
  const double kLog3 = std::log(3.0);
  std::vector<OpCase> cases = {
      {"by hand", "Softmax", axis(-1), {values({1, 2}, {0, kLog3})}, {0.25, 0.75}},
      {"by hand, first axis", "Softmax", axis(0), {values({2, 2}, {0, kLog3, kLog3, kLog3})}, {0.25, 0.5, 0.75, 0.5}},
      {"large values do not overflow", "Softmax", axis(-1), {values({1, 3}, {1000, 1000, -1000})}, {0.5, 0.5, 0}},
      {"a hidden element",
       "Softmax",
       axis(-1),
       {{.shape = {1, 3}, .gradient = false, .values = {2, -INFINITY, 2}}},
       {0.5, 0, 0.5}},
      {"by hand", "LogSoftmax", axis(-1), {values({1, 2}, {0, kLog3})}, {std::log(0.25), std::log(0.75)}},
      {"large values do not overflow", "LogSoftmax", axis(-1), {values({1, 2}, {1000, 0})}, {0, -1000}},
      {"by hand", "SoftmaxGrad", axis(-1), {values({1, 2}, {0.25, 0.75}), values({1, 2}, {4, 0})}, {0.75, -0.75}},
      {"by hand",
       "LogSoftmaxGrad",
       axis(-1),
       {values({1, 2}, {std::log(0.25), std::log(0.75)}), values({1, 2}, {4, 0})},
       {3, -3}},
  };
  add_shapes(cases, "Softmax");
  add_shapes(cases, "LogSoftmax");
  return cases;
}

}  // namespace piper::ops
