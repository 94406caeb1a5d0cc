#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> concat_cases() {
  auto joined = [](std::string name, int64_t axis, std::vector<std::vector<int64_t>> shapes) {
    OpCase c{std::move(name), "Concat", {{"axis", axis}}, {}};
    for (auto& shape : shapes) c.inputs.push_back({.shape = std::move(shape)});
    return c;
  };
  OpCase known = joined("known values", 1, {{2, 2}, {2, 1}});
  known.inputs[0].values = {1, 2, 3, 4};
  known.inputs[1].values = {5, 6};
  known.expected = {1, 2, 5, 3, 4, 6};
  OpCase integers = joined("of i64", 0, {{2}, {1}, {0}});
  for (CaseInput& input : integers.inputs) input.dtype = ir::DType::kI64;
  integers.inputs[0].values = {1, 2};
  integers.inputs[1].values = {3};
  integers.expected = {1, 2, 3};
  return {known, integers, joined("along the first dim", 0, {{2, 3}, {4, 3}}),
          joined("three along a middle dim", 1, {{2, 1, 3}, {2, 4, 3}, {2, 2, 3}}),
          joined("one tensor", 0, {{3, 2}}), joined("along the last dim", 2, {{2, 3, 5}, {2, 3, 1}})};
}

}  // namespace piper::ops
