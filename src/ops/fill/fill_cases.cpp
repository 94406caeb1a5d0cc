#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> fill_cases() {
  auto filled = [](std::string name, ir::Shape shape, double value, std::string dtype, std::vector<double> expected) {
    return OpCase{std::move(name), "Fill", {{"shape", std::move(shape)}, {"value", value}, {"dtype", std::move(dtype)}}, {},
                  std::move(expected)};
  };
  return {filled("a matrix", {2, 2}, 0.5, "f64", {0.5, 0.5, 0.5, 0.5}), filled("a scalar", {}, -1, "f32", {-1}),
          filled("of i64", {3}, 7, "i64", {7, 7, 7}), filled("of bool", {2}, 1, "bool", {1, 1}),
          filled("nothing", {0, 2}, 1, "f32", {})};
}

}  // namespace piper::ops
