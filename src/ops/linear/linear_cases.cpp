#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape)}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
const CaseInput kAbsent{.present = false};
ir::Attrs trans(int64_t w) { return {{"trans_w", w}}; }

}  // namespace

std::vector<OpCase> linear_cases() {
  return {
      {"by hand",
       "Linear",
       trans(0),
       {values({2, 2}, {1, 2, 3, 4}), values({2, 3}, {1, 0, 2, 0, 1, 3}), values({3}, {10, 20, 30})},
       {11, 22, 38, 13, 24, 48}},
      {"by hand, transposed",
       "Linear",
       trans(1),
       {values({1, 2}, {1, 2}), values({3, 2}, {1, 0, 0, 1, 2, 3})},
       {1, 2, 8}},
      {"rows of a sequence", "Linear", trans(0), {tensor({3, 5, 7}), tensor({7, 17}), tensor({17})}},
      {"rows of a sequence, transposed", "Linear", trans(1), {tensor({3, 5, 7}), tensor({17, 7}), tensor({17})}},
      {"no bias", "Linear", trans(1), {tensor({5, 33}), tensor({17, 33}), kAbsent}},
      {"one row", "Linear", trans(0), {tensor({33}), tensor({33, 5}), tensor({5})}},
      {"one feature", "Linear", trans(1), {tensor({17, 1}), tensor({1, 1}), tensor({1})}},
      {"no rows", "Linear", trans(0), {tensor({0, 3}), tensor({3, 5}), tensor({5})}},
      {"input gradient by hand",
       "LinearGradInput",
       trans(0),
       {values({1, 3}, {1, 2, 3}), values({2, 3}, {1, 0, 2, 0, 1, 3})},
       {7, 11}},
      {"input gradient", "LinearGradInput", trans(1), {tensor({3, 5, 17}), tensor({17, 7})}},
      {"input gradient of a wide layer", "LinearGradInput", trans(0), {tensor({33, 33}), tensor({7, 33})}},
      {"input gradient of one row", "LinearGradInput", trans(1), {tensor({5}), tensor({5, 3})}},
      {"weight gradient by hand",
       "LinearGradWeight",
       trans(0),
       {values({2, 2}, {1, 2, 3, 4}), values({2, 1}, {10, 1})},
       {13, 24}},
      {"weight gradient", "LinearGradWeight", trans(0), {tensor({3, 5, 7}), tensor({3, 5, 17})}},
      {"weight gradient, transposed", "LinearGradWeight", trans(1), {tensor({3, 5, 7}), tensor({3, 5, 17})}},
      {"weight gradient, accumulated",
       "LinearGradWeight",
       {{"trans_w", int64_t{1}}, {"accumulate", int64_t{1}}},
       {tensor({33, 5}), tensor({33, 3})}},
      {"weight gradient of no rows", "LinearGradWeight", trans(0), {tensor({0, 2}), tensor({0, 2})}, {0, 0, 0, 0}},
      {"bias gradient by hand", "LinearGradBias", {}, {values({3, 2}, {1, 2, 3, 4, 5, 6})}, {9, 12}},
      {"bias gradient of many rows", "LinearGradBias", {}, {tensor({3, 33, 17})}},
      {"bias gradient of a block of rows", "LinearGradBias", {}, {tensor({32, 7})}},
      {"bias gradient of one row", "LinearGradBias", {{"accumulate", int64_t{1}}}, {tensor({5})}},
  };
}

}  // namespace piper::ops
