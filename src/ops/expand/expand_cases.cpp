#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> expand_cases() {
  using ir::Shape;
  return {
      {"a column", "Expand", {{"shape", Shape{3, 5}}}, {{.shape = {3, 1}}}},
      {"a row", "Expand", {{"shape", Shape{3, 5}}}, {{.shape = {5}}}},
      {"a scalar", "Expand", {{"shape", Shape{2, 3}}}, {{.shape = {}}}},
      {"a middle dim", "Expand", {{"shape", Shape{2, 4, 3}}}, {{.shape = {2, 1, 3}}}},
      {"known values", "Expand", {{"shape", Shape{2, 2}}}, {{.shape = {2, 1}, .values = {1, 2}}}, {1, 1, 2, 2}},
      {"of bool", "Expand", {{"shape", Shape{2, 2}}}, {{.dtype = ir::DType::kBool, .shape = {2}, .values = {1, 0}}}, {1, 0, 1, 0}},
      {"of i64", "Expand", {{"shape", Shape{3}}}, {{.dtype = ir::DType::kI64, .shape = {1}, .values = {7}}}, {7, 7, 7}},
  };
}

}  // namespace piper::ops
