#include "ops/case.h"

namespace piper::ops {

namespace {

using Ints = std::vector<int64_t>;

CaseInput tensor(Ints shape) { return {.shape = std::move(shape)}; }
CaseInput values(Ints shape, std::vector<double> v) { return {.shape = std::move(shape), .values = std::move(v)}; }
CaseInput indices(Ints shape, int64_t plane) {
  return {.dtype = ir::DType::kI32,
          .shape = std::move(shape),
          .gradient = false,
          .low = 0,
          .high = static_cast<double>(plane)};
}

ir::Attrs window(Ints kernel, Ints strides, Ints dilations, Ints pads, int64_t ceil = 0) {
  return {{"kernel", std::move(kernel)},
          {"strides", std::move(strides)},
          {"dilations", std::move(dilations)},
          {"pads", std::move(pads)},
          {"ceil", ceil}};
}
ir::Attrs with(ir::Attrs attrs, const char* name, ir::AttrValue value) {
  attrs.set(name, std::move(value));
  return attrs;
}
const ir::Attrs kPlain = window({2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0});
const ir::Attrs kPadded = window({3, 2}, {2, 1}, {1, 2}, {1, 0, 1, 1});
const ir::Attrs kCeil = window({3, 3}, {2, 2}, {1, 1}, {0, 1, 0, 1}, 1);
const std::vector<double> kSquare{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
CaseInput square() { return values({1, 1, 4, 4}, kSquare); }

}  // namespace

std::vector<OpCase> pool_cases() {
  return {
      {"by hand", "MaxPool", kPlain, {square()}, {6, 8, 14, 16}},
      {"last windows hang over",
       "MaxPool",
       window({3, 3}, {2, 2}, {1, 1}, {0, 0, 0, 0}, 1),
       {square()},
       {11, 12, 15, 16}},
      {"equal elements", "MaxPool", kPlain, {{.shape = {1, 1, 2, 2}, .gradient = false, .values = {3, 3, 3, 3}}}, {3}},
      {"padded and dilated", "MaxPool", kPadded, {tensor({3, 2, 6, 5})}},
      {"ceil", "MaxPool", kCeil, {tensor({2, 3, 6, 7})}},
      {"one spatial dim", "MaxPool", window({3}, {1}, {1}, {1, 1}), {tensor({2, 3, 9})}},
      {"three spatial dims",
       "MaxPool",
       window({2, 2, 2}, {1, 2, 1}, {1, 1, 1}, {0, 0, 1, 0, 0, 1}),
       {tensor({2, 2, 3, 4, 3})}},
      {"bytes",
       "MaxPool",
       kPlain,
       {{.dtype = ir::DType::kU8, .shape = {1, 1, 2, 4}, .values = {0, 200, 3, 4, 5, 6, 7, 255}}},
       {200, 255}},
      {"max gradient by hand",
       "MaxPoolGrad",
       with(kPlain, "input", Ints{2, 2}),
       {values({1, 2, 1, 1}, {5, 7}), {.dtype = ir::DType::kI32, .shape = {1, 2, 1, 1}, .values = {3, 0}}},
       {0, 0, 0, 5, 7, 0, 0, 0}},
      {"max gradient of windows that overlap",
       "MaxPoolGrad",
       with(kPadded, "input", Ints{6, 5}),
       {tensor({3, 2, 3, 4}), indices({3, 2, 3, 4}, 30)}},
      {"max gradient of a window of padding",
       "MaxPoolGrad",
       with(kPlain, "input", Ints{1, 2}),
       {values({1, 1, 1, 1}, {5}), {.dtype = ir::DType::kI32, .shape = {1, 1, 1, 1}, .values = {-1}}},
       {0, 0}},
      {"max gradient, one spatial dim",
       "MaxPoolGrad",
       with(window({3}, {1}, {1}, {1, 1}), "input", Ints{9}),
       {tensor({2, 3, 9}), indices({2, 3, 9}, 9)}},
      {"indices of planes",
       "MaxPoolIndices",
       {{"planes", Ints{2, 2, 3}}, {"rows", int64_t{1}}},
       {{.dtype = ir::DType::kI32, .shape = {1, 2, 1, 1}, .values = {4, 1}}},
       {4, 7}},
      {"indices by columns",
       "MaxPoolIndices",
       {{"planes", Ints{1, 2, 3}}, {"rows", int64_t{1}}, {"column_major", int64_t{1}}},
       {{.dtype = ir::DType::kI32, .shape = {2, 1, 1, 2}, .values = {0, 1, 3, 5}}},
       {0, 2, 7, 11}},
      {"indices of one spatial dim",
       "MaxPoolIndices",
       {{"planes", Ints{3, 5}}, {"rows", int64_t{0}}},
       {indices({2, 3, 4}, 5)}},
      {"indices of three spatial dims",
       "MaxPoolIndices",
       {{"planes", Ints{3, 2, 2, 2}}, {"rows", int64_t{2}}, {"column_major", int64_t{1}}},
       {indices({2, 3, 1, 1, 2}, 8)}},
      {"average by hand", "AveragePool", kPlain, {square()}, {3.5, 5.5, 11.5, 13.5}},
      {"average, last windows hang over",
       "AveragePool",
       window({3, 3}, {2, 2}, {1, 1}, {0, 0, 0, 0}, 1),
       {square()},
       {6, 7.5, 12, 13.5}},
      {"average with padding counted",
       "AveragePool",
       with(kPadded, "count_include_pad", int64_t{1}),
       {tensor({3, 2, 6, 5})}},
      {"average with padding left out", "AveragePool", kPadded, {tensor({3, 2, 6, 5})}},
      {"average, ceil, padding counted",
       "AveragePool",
       with(kCeil, "count_include_pad", int64_t{1}),
       {tensor({2, 3, 6, 7})}},
      {"average of one spatial dim", "AveragePool", window({3}, {2}, {1}, {1, 0}), {tensor({2, 3, 9})}},
      {"average gradient by hand",
       "AveragePoolGrad",
       with(kPlain, "input", Ints{2, 3}),
       {values({1, 1, 1, 1}, {8})},
       {2, 2, 0, 2, 2, 0}},
      {"average gradient", "AveragePoolGrad", with(kPadded, "input", Ints{6, 5}), {tensor({3, 2, 3, 4})}},
      {"average gradient, ceil", "AveragePoolGrad", with(kCeil, "input", Ints{6, 7}), {tensor({2, 3, 3, 4})}},
      {"average gradient of three spatial dims",
       "AveragePoolGrad",
       with(window({2, 2, 2}, {1, 2, 1}, {1, 1, 1}, {0, 0, 1, 0, 0, 1}), "input", Ints{3, 4, 3}),
       {tensor({2, 2, 2, 2, 4})}},
  };
}

}  // namespace piper::ops
