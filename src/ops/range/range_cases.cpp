#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> range_cases() {
  auto range = [](std::string name, double start, double limit, double delta, std::string dtype, std::vector<double> expected) {
    return OpCase{std::move(name), "Range",
                  {{"start", start}, {"limit", limit}, {"delta", delta}, {"dtype", std::move(dtype)}}, {}, std::move(expected)};
  };
  return {range("of i64", 0, 4, 1, "i64", {0, 1, 2, 3}), range("backwards", 5, 0, -2, "i64", {5, 3, 1}),
          range("of floats", 0, 1, 0.3, "f64", {0, 0.3, 0.6, 0.9}), range("of nothing", 3, 3, 1, "i64", {}),
          range("of f32", 1, 2.5, 0.5, "f32", {1, 1.5, 2})};
}

}  // namespace piper::ops
