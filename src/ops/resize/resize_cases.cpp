#include "ops/case.h"

namespace piper::ops {

namespace {

using Ints = std::vector<int64_t>;

CaseInput tensor(Ints shape) { return {.shape = std::move(shape)}; }
CaseInput values(Ints shape, std::vector<double> v) { return {.shape = std::move(shape), .values = std::move(v)}; }

ir::Attrs along(int64_t axis, int64_t from, int64_t to, std::string mode, std::string coordinates,
                std::string nearest = "round_prefer_floor") {
  return {{"axis", axis},
          {"from", from},
          {"to", to},
          {"scale", static_cast<double>(to) / static_cast<double>(from)},
          {"mode", std::move(mode)},
          {"coordinates", std::move(coordinates)},
          {"nearest", std::move(nearest)}};
}
ir::Attrs with(ir::Attrs attrs, const char* name, ir::AttrValue value) {
  attrs.set(name, std::move(value));
  return attrs;
}

}  // namespace

std::vector<OpCase> resize_cases() {
  return {
      {"nearest by hand",
       "Resample",
       along(2, 2, 4, "nearest", "asymmetric", "floor"),
       {values({1, 1, 2}, {1, 2})},
       {1, 1, 2, 2}},
      {"halves rounded down",
       "Resample",
       along(0, 2, 4, "nearest", "asymmetric"),
       {values({2, 2}, {1, 2, 3, 4})},
       {1, 2, 1, 2, 3, 4, 3, 4}},
      {"halves rounded up",
       "Resample",
       along(0, 2, 4, "nearest", "asymmetric", "round_prefer_ceil"),
       {values({2}, {1, 2})},
       {1, 2, 2, 2}},
      {"linear by hand", "Resample", along(0, 2, 4, "linear", "half_pixel"), {values({2}, {0, 4})}, {0, 1, 3, 4}},
      {"aligned corners", "Resample", along(0, 2, 3, "linear", "align_corners"), {values({2}, {0, 4})}, {0, 2, 4}},
      {"linear, smaller", "Resample", along(1, 7, 3, "linear", "half_pixel"), {tensor({2, 7, 3})}},
      {"linear to one element", "Resample", along(2, 5, 1, "linear", "pytorch_half_pixel"), {tensor({2, 3, 5})}},
      {"nearest, many rows", "Resample", along(2, 5, 8, "nearest", "half_pixel", "ceil"), {tensor({7, 33, 5, 3})}},
      {"cubic", "Resample", with(along(2, 5, 8, "cubic", "half_pixel"), "cubic_a", -0.75), {tensor({2, 3, 5, 2})}},
      {"cubic without the outside",
       "Resample",
       with(along(1, 4, 3, "cubic", "align_corners"), "exclude_outside", int64_t{1}),
       {tensor({2, 4})}},
      {"symmetric half pixels",
       "Resample",
       with(along(1, 5, 4, "linear", "half_pixel_symmetric"), "scale", 0.9),
       {tensor({2, 5})}},
      {"gradient by hand",
       "ResampleGrad",
       along(2, 2, 4, "nearest", "asymmetric", "floor"),
       {values({1, 1, 4}, {1, 2, 3, 4})},
       {3, 7}},
      {"gradient, linear", "ResampleGrad", along(0, 2, 4, "linear", "half_pixel"), {values({4}, {1, 1, 1, 1})}, {2, 2}},
      {"gradient, smaller", "ResampleGrad", along(1, 7, 3, "linear", "half_pixel"), {tensor({2, 3, 3})}},
      {"gradient, cubic", "ResampleGrad", along(2, 5, 8, "cubic", "half_pixel"), {tensor({2, 3, 8, 2})}},
  };
}

}  // namespace piper::ops
