#include "ops/case.h"

namespace piper::ops {

namespace {

using Sizes = std::vector<int64_t>;

CaseInput tensor(Sizes shape, std::vector<double> values = {}) {
  return {.shape = std::move(shape), .values = std::move(values)};
}
CaseInput counts(std::vector<double> values, int64_t blocks = 0) {
  const int64_t n = static_cast<int64_t>(values.size());
  return {.dtype = ir::DType::kI64,
          .shape = blocks == 0 ? Sizes{n} : Sizes{blocks, n / blocks},
          .values = std::move(values)};
}
ir::Attrs trans(int64_t w) { return {{"trans_w", w}}; }

}  // namespace

std::vector<OpCase> grouped_linear_cases() {
  const CaseInput rows = tensor({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const CaseInput weights = tensor({3, 2, 1}, {1, 1, 9, 9, 10, 1});
  const CaseInput dy = tensor({4, 1}, {1, 10, 100, 1000});
  return {
      {"an expert without rows, a row without expert",
       "GroupedLinear",
       trans(0),
       {rows, weights, counts({1, 0, 2})},
       {3, 34, 56, 0}},
      {"with a bias",
       "GroupedLinear",
       trans(0),
       {rows, weights, counts({2, 1, 0}), tensor({3, 1}, {0.5, 0.25, 7})},
       {3.5, 7.5, 99.25, 0}},
      {"two blocks", "GroupedLinear", trans(0), {rows, weights, counts({0, 0, 1, 1, 0, 1}, 2)}, {12, 7, 56, 0}},
      {"more rows counted than there are",
       "GroupedLinear",
       trans(0),
       {rows, weights, counts({0, 3, 5})},
       {27, 63, 99, 78}},
      {"one expert has all rows",
       "GroupedLinear",
       trans(0),
       {tensor({33, 5}), tensor({4, 5, 17}), counts({0, 33, 0, 0}), tensor({4, 17})}},
      {"many rows",
       "GroupedLinear",
       trans(0),
       {tensor({90, 33}), tensor({4, 33, 19}), counts({7, 0, 50, 30}), tensor({4, 19})}},
      {"many rows, transposed",
       "GroupedLinear",
       trans(1),
       {tensor({90, 33}), tensor({4, 19, 33}), counts({7, 0, 50, 30}), tensor({4, 19})}},
      {"many rows in blocks",
       "GroupedLinear",
       trans(1),
       {tensor({60, 9}), tensor({2, 7, 9}), counts({7, 3, 0, 20, 0, 0}, 3)}},
      {"no rows", "GroupedLinear", trans(0), {tensor({0, 3}), tensor({2, 3, 4}), counts({0, 0})}},
      {"weight gradient", "GroupedLinearGradWeight", trans(0), {rows, dy, counts({1, 0, 2})}, {1, 2, 0, 0, 530, 640}},
      {"weight gradient of blocks",
       "GroupedLinearGradWeight",
       trans(1),
       {rows, dy, counts({1, 0, 0, 1}, 2)},
       {1, 2, 30, 40}},
      {"weight gradient of many rows",
       "GroupedLinearGradWeight",
       trans(0),
       {tensor({90, 33}), tensor({90, 19}), counts({7, 0, 50, 30})}},
      {"weight gradient of many rows, transposed",
       "GroupedLinearGradWeight",
       trans(1),
       {tensor({90, 33}), tensor({90, 19}), counts({7, 0, 50, 30})}},
      {"bias gradient", "GroupedLinearGradBias", {}, {dy, counts({1, 0, 2})}, {1, 0, 110}},
      {"bias gradient of one expert", "GroupedLinearGradBias", {}, {dy, counts({0, 4})}, {0, 1111}},
      {"bias gradient of many rows", "GroupedLinearGradBias", {}, {tensor({300, 70}), counts({7, 0, 200, 30})}},
      {"bias gradient of blocks", "GroupedLinearGradBias", {}, {tensor({60, 40}), counts({7, 3, 0, 20, 0, 0}, 3)}},
  };
}

}  // namespace piper::ops
