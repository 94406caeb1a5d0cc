#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> cast_cases() {
  using ir::DType;
  using Values = std::vector<double>;
  auto cast = [](std::string name, DType from, std::string to, Values x, Values y) {
    const int64_t n = static_cast<int64_t>(x.size());
    return OpCase{std::move(name), "Cast", {{"to", std::move(to)}}, {{.dtype = from, .shape = {n}, .gradient = false, .values = std::move(x)}}, std::move(y)};
  };
  OpCase same = cast("f64 to f64", DType::kF64, "f64", {0.1, -3}, {0.1, -3});
  same.inputs[0].gradient = true;
  return {same,
          cast("f64 to i64 truncates", DType::kF64, "i64", {1.9, -1.9, 0.2}, {1, -1, 0}),
          cast("f64 to i32 saturates", DType::kF64, "i32", {1e12, -1e12}, {2147483647, -2147483648.0}),
          cast("f64 to bool", DType::kF64, "bool", {0, 0.1, -2}, {0, 1, 1}),
          cast("i64 to f64", DType::kI64, "f64", {3, -4}, {3, -4}),
          cast("i64 to bool", DType::kI64, "bool", {0, 256}, {0, 1}),
          cast("bool to f32", DType::kBool, "f32", {0, 1}, {0, 1}),
          cast("bool to i64", DType::kBool, "i64", {0, 1}, {0, 1}),
          cast("i32 to i64", DType::kI32, "i64", {-5, 7}, {-5, 7})};
}

}  // namespace piper::ops
