#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape)}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
ir::Attrs attrs(int64_t interleaved, int64_t inverse) { return {{"interleaved", interleaved}, {"inverse", inverse}}; }

}  // namespace

std::vector<OpCase> rotary_cases() {
  return {
      // A quarter turn takes (x1, x2) to (-x2, x1).
      {"quarter turn",
       "Rotary",
       attrs(0, 0),
       {values({1, 4}, {1, 2, 3, 4}), values({1, 2}, {0, 0}), values({1, 2}, {1, 1})},
       {-3, -4, 1, 2}},
      {"quarter turn of neighbours",
       "Rotary",
       attrs(1, 0),
       {values({1, 4}, {1, 2, 3, 4}), values({1, 2}, {0, 0}), values({1, 2}, {1, 1})},
       {-2, 1, -4, 3}},
      {"quarter turn back",
       "Rotary",
       attrs(0, 1),
       {values({1, 2}, {1, 2}), values({1, 1}, {0}), values({1, 1}, {1})},
       {2, -1}},
      {"heads share the angles", "Rotary", attrs(0, 0), {tensor({2, 3, 5, 34}), tensor({5, 17}), tensor({5, 17})}},
      {"angles of each sample",
       "Rotary",
       attrs(0, 0),
       {tensor({2, 3, 5, 6}), tensor({2, 1, 5, 3}), tensor({2, 1, 5, 3})}},
      {"neighbours", "Rotary", attrs(1, 0), {tensor({2, 3, 5, 34}), tensor({1, 1, 5, 17}), tensor({1, 1, 5, 17})}},
      {"neighbours, back", "Rotary", attrs(1, 1), {tensor({2, 2, 3, 66}), tensor({3, 33}), tensor({3, 33})}},
      {"halves, back", "Rotary", attrs(0, 1), {tensor({1, 2, 7, 14}), tensor({2, 7, 7}), tensor({2, 7, 7})}},
      {"one angle for all positions", "Rotary", attrs(0, 0), {tensor({2, 3, 4}), tensor({1, 2}), tensor({1, 2})}},
  };
}

}  // namespace piper::ops
