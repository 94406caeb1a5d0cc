#include "ops/case.h"

namespace piper::ops {

namespace {

using Ints = std::vector<int64_t>;

OpCase cut(std::string name, std::string op, CaseInput x, Ints starts, Ints steps, ir::Shape shape,
           std::vector<double> expected = {}) {
  return {std::move(name), std::move(op),
          {{"starts", std::move(starts)}, {"steps", std::move(steps)}, {"shape", std::move(shape)}},
          {std::move(x)}, std::move(expected)};
}

}  // namespace

std::vector<OpCase> slice_cases() {
  const CaseInput row{.shape = {5}, .values = {0, 1, 2, 3, 4}};
  CaseInput integers = row;
  integers.dtype = ir::DType::kI64;
  return {
      cut("a part of a row", "Slice", row, {1}, {1}, {3}, {1, 2, 3}),
      cut("backwards", "Slice", row, {4}, {-2}, {3}, {4, 2, 0}),
      cut("every other", "Slice", row, {0}, {2}, {3}, {0, 2, 4}),
      cut("nothing", "Slice", row, {2}, {1}, {0}),
      cut("of i64", "Slice", integers, {2}, {1}, {2}, {2, 3}),
      cut("columns", "Slice", {.shape = {3, 7}}, {0, 2}, {1, 1}, {3, 4}),
      cut("in all dims", "Slice", {.shape = {4, 5, 6}}, {1, 4, 0}, {2, -1, 3}, {2, 3, 2}),
      cut("a middle dim", "Slice", {.shape = {3, 4, 5}}, {0, 1, 0}, {1, 1, 1}, {3, 2, 5}),
      cut("the gradient of a part", "SliceGrad", {.shape = {2}, .values = {5, 6}}, {1}, {1}, {4}, {0, 5, 6, 0}),
      cut("the gradient of a part backwards", "SliceGrad", {.shape = {2}, .values = {5, 6}}, {3}, {-2}, {4}, {0, 6, 0, 5}),
      cut("the gradient of nothing", "SliceGrad", {.shape = {0}}, {0}, {1}, {3}, {0, 0, 0}),
      cut("the gradient of columns", "SliceGrad", {.shape = {2, 1}, .values = {5, 6}}, {0, 1}, {1, 1}, {2, 3}, {0, 5, 0, 0, 6, 0}),
  };
}

}  // namespace piper::ops
