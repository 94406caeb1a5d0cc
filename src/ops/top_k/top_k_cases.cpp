#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> top_k_cases() {
  const auto take = [](std::string name, int64_t axis, int64_t k, int64_t largest, std::vector<double> expected) {
    return OpCase{std::move(name), "TopK", {{"axis", axis}, {"k", k}, {"largest", largest}},
                  {{.shape = {2, 4}, .values = {3, 1, 4, 2, -5, 9, 2, 6}}}, std::move(expected)};
  };
  const auto place = [](std::string name, std::string op, int64_t axis, int64_t keep, int64_t last, std::vector<double> expected) {
    return OpCase{std::move(name), std::move(op), {{"axis", axis}, {"keepdims", keep}, {"last", last}},
                  {{.shape = {2, 3}, .values = {7, 2, 7, 1, 5, 1}}}, std::move(expected)};
  };
  OpCase middle{"along a middle dim", "TopK", {{"axis", int64_t{1}}, {"k", int64_t{3}}}, {{.shape = {3, 7, 4}}}};
  OpCase integers = take("of i64", 1, 2, 1, {4, 3, 9, 6});
  integers.inputs[0].dtype = ir::DType::kI64;
  return {take("two of four", 1, 2, 1, {4, 3, 9, 6}),
          take("the smallest", 1, 1, 0, {1, -5}),
          take("all, sorted", 1, 4, 1, {4, 3, 2, 1, 9, 6, 2, -5}),
          take("of columns", 0, 1, 1, {3, 9, 4, 6}),
          take("none", 1, 0, 1, {}),
          middle,
          integers,
          place("the first of equal ones", "ArgMax", 1, 1, 0, {0, 1}),
          place("the last of equal ones", "ArgMax", 1, 0, 1, {2, 1}),
          place("largest of columns", "ArgMax", 0, 0, 0, {0, 1, 0}),
          place("smallest of columns", "ArgMin", 0, 1, 0, {1, 0, 1}),
          place("smallest, first", "ArgMin", 1, 1, 0, {1, 0}),
          place("smallest, last", "ArgMin", 1, 0, 1, {1, 2}),
          {"of a middle dim", "ArgMax", {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}, {"last", int64_t{0}}}, {{.shape = {2, 5, 3}}}},
          {"of one element", "ArgMin", {{"axis", int64_t{0}}, {"keepdims", int64_t{1}}, {"last", int64_t{0}}}, {{.shape = {1}}}, {0}}};
}

}  // namespace piper::ops
