#include <cmath>

#include "ops/case.h"

namespace piper::ops {

namespace {

using ir::DType;

CaseInput logits(std::vector<int64_t> shape) { return {.shape = std::move(shape), .low = -3, .high = 3}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
CaseInput targets(std::vector<int64_t> shape, double classes, DType dtype = DType::kI64) {
  return {.dtype = dtype, .shape = std::move(shape), .gradient = false, .low = 0, .high = classes};
}
CaseInput fixed(std::vector<int64_t> shape, std::vector<double> v, DType dtype = DType::kI64) {
  return {.dtype = dtype, .shape = std::move(shape), .gradient = false, .values = std::move(v)};
}
CaseInput count(double n) { return {.shape = {1}, .gradient = false, .values = {n}, .keep_f64 = true}; }
ir::Attrs attrs(int64_t class_dim = -1, double smoothing = 0, int64_t ignore = -100) {
  return {{"class_dim", class_dim}, {"label_smoothing", smoothing}, {"ignore_index", ignore}};
}
ir::Attrs weighted(ir::Attrs a, double weight) {
  a.set("weight", weight);
  return a;
}

std::vector<OpCase> losses() {
  const double log3 = std::log(3.0), log4 = std::log(4.0);
  ir::Attrs adding = attrs();
  adding.set("accumulate", int64_t{1});
  const std::string op = "CrossEntropyLoss";
  return {
      // Probabilities 1/4 and 3/4.
      {"by hand", op, attrs(), {values({2, 2}, {0, log3, log3, 0}), fixed({2}, {0, 0})}, {log4 + log4 - log3}},
      {"an ignored target", op, attrs(), {values({2, 2}, {0, log3, log3, 0}), fixed({2}, {-100, 0})}, {log4 - log3}},
      {"every target ignored", op, attrs(-1, 0, 1), {values({2, 2}, {0, 1, 2, 3}), fixed({2}, {1, 1})}, {0}},
      {"smoothed by hand", op, attrs(-1, 0.5), {values({1, 2}, {0, log3}), fixed({1}, {1})}, {log4 - 0.75 * log3}},
      {"large logits", op, attrs(), {values({1, 3}, {1000, 0, 0}), fixed({1}, {1})}, {1000}},
      {"a target that is no class", op, attrs(), {values({1, 2}, {0, 0}), fixed({1}, {2})}, {NAN}},
      {"classes in dim 1",
       op,
       attrs(1),
       {values({1, 2, 2}, {0, log3, log3, 0}), fixed({1, 2}, {0, 0})},
       {log4 + log4 - log3}},
      {"rows of a sequence", op, attrs(), {logits({3, 5, 33}), targets({3, 5}, 33)}},
      {"smoothed", op, attrs(-1, 0.1), {logits({17, 7}), targets({17}, 7, DType::kI32)}},
      {"smoothed classes in dim 1, ignored class", op, attrs(1, 0.2, 2), {logits({3, 5, 17}), targets({3, 17}, 5)}},
      {"accumulated", op, adding, {logits({5, 3}), targets({5}, 3)}},
  };
}

std::vector<OpCase> gradients() {
  const double log3 = std::log(3.0);
  const std::string op = "CrossEntropyGrad";
  return {
      {"by hand",
       op,
       weighted(attrs(), 2),
       {values({2, 2}, {0, log3, 0, log3}), fixed({2}, {0, 1}), count(4)},
       {-0.375, 0.375, 0.125, -0.125}},
      {"an ignored target",
       op,
       weighted(attrs(), 1),
       {values({2, 2}, {0, log3, 0, log3}), fixed({2}, {-100, 1}), count(1)},
       {0, 0, 0.25, -0.25}},
      {"no valid target", op, weighted(attrs(), 1), {values({1, 2}, {0, log3}), fixed({1}, {-100}), count(0)}, {0, 0}},
      {"smoothed by hand",
       op,
       weighted(attrs(-1, 0.2), 1),
       {values({1, 2}, {0, log3}), fixed({1}, {1}), count(1)},
       {0.15, -0.15}},
      {"a target that is no class",
       op,
       weighted(attrs(), 1),
       {values({1, 2}, {0, 0}), fixed({1}, {-1}), count(1)},
       {NAN, NAN}},
      {"classes in dim 1",
       op,
       weighted(attrs(1), 1),
       {values({1, 2, 2}, {0, log3, log3, 0}), fixed({1, 2}, {0, 0}), count(1)},
       {-0.75, -0.25, 0.75, 0.25}},
      {"rows of a sequence", op, weighted(attrs(), 1), {logits({3, 5, 33}), targets({3, 5}, 33), count(15)}},
      {"smoothed classes in dim 1, ignored class",
       op,
       weighted(attrs(1, 0.2, 2), 0.5),
       {logits({3, 5, 17}), targets({3, 17}, 5, DType::kI32), count(40)}},
  };
}

}  // namespace

std::vector<OpCase> cross_entropy_cases() {
  std::vector<OpCase> cases = losses();
  for (OpCase& c : gradients()) cases.push_back(std::move(c));
  const std::string op = "CountValid";
  cases.push_back({"none ignored", op, {{"ignore_index", int64_t{-100}}}, {targets({3, 5}, 7)}, {15}});
  cases.push_back({"some ignored", op, {{"ignore_index", int64_t{-100}}}, {fixed({3}, {1, -100, 2})}, {2}});
  cases.push_back({"all ignored", op, {{"ignore_index", int64_t{0}}}, {targets({33}, 1)}, {0}});
  cases.push_back({"i32", op, {{"ignore_index", int64_t{3}}}, {fixed({2, 2}, {3, 0, 1, 3}, DType::kI32)}, {2}});
  return cases;
}

}  // namespace piper::ops
