#include "ops/case.h"

namespace piper::ops {

namespace {

using Ints = std::vector<int64_t>;

CaseInput tensor(Ints shape) { return {.shape = std::move(shape)}; }
// Too much for central differences.
CaseInput large(Ints shape) { return {.shape = std::move(shape), .gradient = false}; }
CaseInput values(Ints shape, std::vector<double> v) { return {.shape = std::move(shape), .values = std::move(v)}; }
const CaseInput kAbsent{.present = false};

ir::Attrs window(Ints strides, Ints dilations, Ints pads, int64_t group = 1) {
  return {{"strides", std::move(strides)},
          {"dilations", std::move(dilations)},
          {"pads", std::move(pads)},
          {"group", group}};
}
ir::Attrs with(ir::Attrs attrs, const char* name, Ints sizes) {
  attrs.set(name, std::move(sizes));
  return attrs;
}
const ir::Attrs kPlain = window({1, 1}, {1, 1}, {0, 0, 0, 0});
const ir::Attrs kSame = window({1, 1}, {1, 1}, {1, 1, 1, 1});
const ir::Attrs kUneven = window({2, 1}, {1, 2}, {1, 0, 0, 2});

}  // namespace

std::vector<OpCase> conv_cases() {
  return {
      {"by hand",
       "Conv",
       kPlain,
       {values({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}), values({1, 1, 2, 2}, {1, 0, 0, 10}), values({1}, {100})},
       {151, 162}},
      {"padded", "Conv", kSame, {tensor({2, 3, 5, 4}), tensor({4, 3, 3, 3}), tensor({4})}},
      {"no bias", "Conv", kPlain, {tensor({2, 17, 4, 4}), tensor({16, 17, 2, 1}), kAbsent}},
      {"uneven strides, dilations and pads",
       "Conv",
       kUneven,
       {tensor({3, 2, 6, 7}), tensor({3, 2, 3, 2}), tensor({3})}},
      {"remainder that no window reaches",
       "Conv",
       window({3, 3}, {1, 1}, {0, 0, 0, 0}),
       {tensor({2, 2, 7, 6}), tensor({2, 2, 2, 2}), kAbsent}},
      {"groups",
       "Conv",
       window({1, 1}, {1, 1}, {1, 1, 1, 1}, 2),
       {tensor({2, 4, 4, 3}), tensor({6, 2, 3, 3}), tensor({6})}},
      {"depthwise",
       "Conv",
       window({2, 2}, {1, 1}, {1, 1, 1, 1}, 5),
       {tensor({5, 5, 5, 6}), tensor({5, 1, 3, 3}), tensor({5})}},
      {"one element per tap",
       "Conv",
       window({1, 1}, {1, 1}, {0, 0, 0, 0}),
       {tensor({5, 7, 3, 3}), tensor({9, 7, 1, 1}), tensor({9})}},
      {"one spatial dim", "Conv", window({2}, {2}, {2, 1}), {tensor({2, 3, 9}), tensor({4, 3, 3}), tensor({4})}},
      {"three spatial dims",
       "Conv",
       window({1, 2, 1}, {1, 1, 1}, {0, 1, 1, 1, 0, 1}),
       {tensor({2, 2, 3, 4, 3}), tensor({3, 2, 2, 2, 3}), kAbsent}},
      {"several blocks of channels", "Conv", kSame, {large({3, 35, 9, 9}), large({70, 35, 3, 3}), large({70})}},
      {"no samples", "Conv", kPlain, {tensor({0, 1, 2, 2}), tensor({1, 1, 2, 2}), kAbsent}},
      {"transposed by hand",
       "ConvTranspose",
       with(window({2}, {1}, {0, 0}), "output", {4}),
       {values({1, 1, 2}, {1, 2}), values({1, 1, 2}, {3, 4})},
       {3, 4, 6, 8}},
      {"transposed", "ConvTranspose", with(kSame, "output", {4, 5}), {tensor({2, 3, 4, 5}), tensor({3, 4, 3, 3})}},
      {"transposed, larger than its taps reach",
       "ConvTranspose",
       with(window({3, 2}, {1, 1}, {1, 1, 1, 1}), "output", {8, 6}),
       {tensor({2, 2, 3, 3}), tensor({2, 3, 3, 3})}},
      {"transposed, negative end padding",
       "ConvTranspose",
       with(window({3, 2}, {1, 1}, {0, 0, -1, -1}), "output", {10, 8}),
       {tensor({1, 1, 3, 3}), tensor({1, 2, 3, 3})}},
      {"transposed, groups and dilations",
       "ConvTranspose",
       with(window({1, 1}, {2, 2}, {0, 0, 0, 0}, 2), "output", {5, 6}),
       {tensor({2, 4, 3, 4}), tensor({4, 3, 2, 2})}},
      {"weight gradient by hand",
       "ConvGradWeight",
       with(window({1}, {1}, {0, 0}), "kernel", {2}),
       {values({1, 1, 3}, {1, 2, 3}), values({1, 1, 2}, {10, 1})},
       {12, 23}},
      {"weight gradient",
       "ConvGradWeight",
       with(kSame, "kernel", {3, 3}),
       {tensor({5, 3, 5, 4}), tensor({5, 18, 5, 4})}},
      {"transposed, several blocks of channels",
       "ConvTranspose",
       with(kSame, "output", {9, 9}),
       {large({3, 70, 9, 9}), large({70, 35, 3, 3})}},
      {"weight gradient, several blocks of channels",
       "ConvGradWeight",
       with(kSame, "kernel", {3, 3}),
       {tensor({3, 35, 9, 9}), tensor({3, 70, 9, 9})}},
      {"weight gradient of one sample",
       "ConvGradWeight",
       with(kUneven, "kernel", {3, 2}),
       {tensor({1, 2, 6, 7}), tensor({1, 3, 3, 7})}},
      {"weight gradient, depthwise, accumulated",
       "ConvGradWeight",
       {{"strides", Ints{2, 2}},
        {"dilations", Ints{1, 1}},
        {"pads", Ints{1, 1, 1, 1}},
        {"group", int64_t{4}},
        {"kernel", Ints{3, 3}},
        {"accumulate", int64_t{1}}},
       {tensor({7, 4, 5, 6}), tensor({7, 4, 3, 3})}},
      {"weight gradient of no samples",
       "ConvGradWeight",
       with(window({1}, {1}, {0, 0}), "kernel", {2}),
       {tensor({0, 1, 3}), tensor({0, 1, 2})},
       {0, 0}},
  };
}

}  // namespace piper::ops
