#include "ops/case.h"

#include <cmath>

namespace piper::ops {

std::vector<OpCase> where_cases() {
  using ir::DType;
  auto chosen = [](std::string name, std::vector<int64_t> c, std::vector<int64_t> a, std::vector<int64_t> b) {
    return OpCase{std::move(name), "Where", {},
                  {{.dtype = DType::kBool, .shape = std::move(c), .low = 0, .high = 2}, {.shape = std::move(a)}, {.shape = std::move(b)}}};
  };
  OpCase known = chosen("known values", {3}, {3}, {});
  known.inputs[0].values = {1, 0, 1};
  known.inputs[1].values = {1, 2, 3};
  known.inputs[2].values = {9};
  known.expected = {1, 9, 3};
  OpCase integers = known;
  integers.name = "of i64";
  integers.inputs[1].dtype = integers.inputs[2].dtype = DType::kI64;
  OpCase one_wanted = chosen("with a constant branch", {2, 3}, {2, 3}, {});
  one_wanted.inputs[2].gradient = false;
  OpCase other_wanted = chosen("with another constant branch", {2, 3}, {}, {3});
  other_wanted.inputs[1].gradient = false;
  OpCase grad{"both gradients", "WhereGrad", {},
              {{.dtype = DType::kBool, .shape = {2, 1}, .values = {1, 0}}, {.shape = {2, 2}, .values = {1, 2, 3, INFINITY}}},
              {1, 2, 0, 0}};
  OpCase grad_same = grad;
  grad_same.name = "gradients of equal shapes";
  grad_same.inputs[0] = {.dtype = DType::kBool, .shape = {2, 2}, .values = {0, 1, 1, 0}};
  grad_same.inputs[1].values = {1, 2, 3, 4};
  grad_same.expected = {0, 2, 3, 0};
  OpCase grad_scalar = grad_same;
  grad_scalar.name = "gradients under a scalar condition";
  grad_scalar.inputs[0] = {.dtype = DType::kBool, .shape = {}, .values = {0}};
  grad_scalar.expected = {0, 0, 0, 0};
  OpCase grad_row = grad_same;
  grad_row.name = "gradients under a row of conditions";
  grad_row.inputs[0] = {.dtype = DType::kBool, .shape = {2}, .values = {0, 1}};
  grad_row.expected = {0, 2, 0, 4};
  return {known, integers, one_wanted, other_wanted, chosen("equal shapes", {3, 4}, {3, 4}, {3, 4}),
          chosen("three ways", {4, 1, 1}, {3, 1}, {5}), chosen("a scalar condition", {}, {2, 3}, {2, 3}),
          chosen("a masked row", {1, 5}, {4, 5}, {1}), grad, grad_same, grad_scalar, grad_row};
}

}  // namespace piper::ops
