#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> pad_cases() {
  using Ints = std::vector<int64_t>;
  auto padded = [](std::string name, CaseInput x, Ints begin, Ints end, double value, std::vector<double> expected = {}) {
    return OpCase{std::move(name), "Pad", {{"begin", std::move(begin)}, {"end", std::move(end)}, {"value", value}},
                  {std::move(x)}, std::move(expected)};
  };
  return {padded("a row", {.shape = {2}, .values = {1, 2}}, {1}, {2}, 7, {7, 1, 2, 7, 7}),
          padded("columns", {.shape = {2, 1}, .values = {1, 2}}, {0, 1}, {0, 1}, 0, {0, 1, 0, 0, 2, 0}),
          padded("nothing", {.shape = {3, 2}}, {0, 0}, {0, 0}, 1),
          padded("every side", {.shape = {2, 3, 4}}, {1, 0, 2}, {0, 1, 3}, -0.5),
          padded("of i64", {.dtype = ir::DType::kI64, .shape = {1}, .values = {4}}, {0}, {1}, 9, {4, 9})};
}

}  // namespace piper::ops
