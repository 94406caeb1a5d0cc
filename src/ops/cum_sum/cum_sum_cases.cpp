#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> cum_sum_cases() {
  const auto sums = [](std::string name, int64_t axis, int64_t exclusive, int64_t reverse, std::vector<double> expected) {
    return OpCase{std::move(name), "CumSum", {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}},
                  {{.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}}}, std::move(expected)};
  };
  OpCase middle{"along a middle dim", "CumSum", {{"axis", int64_t{1}}}, {{.shape = {3, 5, 4}}}};
  OpCase integers = sums("of i64", 1, 0, 0, {1, 3, 6, 4, 9, 15});
  integers.inputs[0].dtype = ir::DType::kI64;
  return {sums("of rows", 1, 0, 0, {1, 3, 6, 4, 9, 15}),    sums("of columns", 0, 0, 0, {1, 2, 3, 5, 7, 9}),
          sums("exclusive", 1, 1, 0, {0, 1, 3, 0, 4, 9}),   sums("from the end", 1, 0, 1, {6, 5, 3, 15, 11, 6}),
          sums("exclusive from the end", 1, 1, 1, {5, 3, 0, 11, 6, 0}), middle, integers};
}

}  // namespace piper::ops
