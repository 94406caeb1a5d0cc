#include "ops/case.h"

namespace piper::ops {

namespace {

OpCase turned(std::string name, std::vector<int64_t> shape, std::vector<int64_t> perm) {
  return {std::move(name), "Transpose", {{"perm", std::move(perm)}}, {{.shape = std::move(shape)}}};
}

}  // namespace

std::vector<OpCase> transpose_cases() {
  OpCase known = turned("known values", {2, 3}, {1, 0});
  known.inputs[0].values = {1, 2, 3, 4, 5, 6};
  known.expected = {1, 4, 2, 5, 3, 6};
  OpCase integers = known;
  integers.name = "of i64";
  integers.inputs[0].dtype = ir::DType::kI64;
  OpCase cube = turned("the last dim first", {2, 2, 3}, {2, 0, 1});
  cube.inputs[0].values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  cube.expected = {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};
  OpCase heads = turned("heads from the middle", {1, 2, 2, 2}, {0, 2, 1, 3});
  heads.inputs[0].values = {0, 1, 2, 3, 4, 5, 6, 7};
  heads.expected = {0, 1, 4, 5, 2, 3, 6, 7};
  OpCase large = turned("larger than a tile", {70, 3, 45}, {2, 1, 0});
  large.inputs[0].gradient = false;
  return {known, integers, cube, heads, large,
          turned("of a scalar", {}, {}),
          turned("nothing moves", {3, 5}, {0, 1}),
          turned("keys for attention", {2, 3, 4, 5}, {0, 2, 3, 1}),
          turned("with a dim of 1", {3, 1, 5}, {2, 1, 0}),
          turned("four dims reversed", {2, 3, 4, 5}, {3, 2, 1, 0}),
          turned("of nothing", {0, 3}, {1, 0})};
}

}  // namespace piper::ops
