#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> reshape_cases() {
  using ir::Shape;
  return {
      {"to a matrix", "Reshape", {{"shape", Shape{6, 5}}}, {{.shape = {2, 3, 5}}}},
      {"to a scalar", "Reshape", {{"shape", Shape{}}}, {{.shape = {1, 1}}}},
      {"from a scalar", "Reshape", {{"shape", Shape{1, 1, 1}}}, {{.shape = {}}}},
      {"keeps the order", "Reshape", {{"shape", Shape{3, 2}}}, {{.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}}}, {1, 2, 3, 4, 5, 6}},
      {"of i64", "Reshape", {{"shape", Shape{4}}}, {{.dtype = ir::DType::kI64, .shape = {2, 2}, .values = {1, 2, 3, 4}}}, {1, 2, 3, 4}},
      {"of bool", "Reshape", {{"shape", Shape{2, 1}}}, {{.dtype = ir::DType::kBool, .shape = {2}, .values = {1, 0}}}, {1, 0}},
      {"of nothing", "Reshape", {{"shape", Shape{0, 7}}}, {{.shape = {3, 0}}}},
  };
}

}  // namespace piper::ops
