#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape)}; }
CaseInput positive(std::vector<int64_t> shape) { return {.shape = std::move(shape), .low = 0.5, .high = 2}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
const CaseInput kAbsent{.present = false};
ir::Attrs attrs(int64_t axis, double eps = 1e-5) { return {{"axis", axis}, {"eps", eps}}; }
ir::Attrs grad(int64_t axis, int64_t accumulate = 0) { return {{"axis", axis}, {"accumulate", accumulate}}; }

}  // namespace

std::vector<OpCase> layer_norm_cases() {
  return {
      // Mean 2, variance 1: eps 0 leaves -1 and 1.
      {"by hand",
       "LayerNorm",
       attrs(-1, 0),
       {values({1, 2}, {1, 3}), values({2}, {2, 5}), values({2}, {10, 20})},
       {8, 25}},
      {"equal elements",
       "LayerNorm",
       attrs(-1, 1),
       {values({1, 3}, {4, 4, 4}), values({3}, {1, 1, 1}), values({3}, {1, 2, 3})},
       {1, 2, 3}},
      {"rows of a sequence", "LayerNorm", attrs(-1), {tensor({3, 5, 33}), tensor({33}), tensor({33})}},
      {"no bias", "LayerNorm", attrs(-1), {tensor({17, 7}), tensor({7}), kAbsent}},
      {"two dims", "LayerNorm", attrs(-2, 1e-3), {tensor({5, 3, 17}), tensor({3, 17}), tensor({3, 17})}},
      {"whole tensor", "LayerNorm", attrs(-2), {tensor({3, 5}), tensor({3, 5}), tensor({3, 5})}},
      {"more rows than a block", "LayerNorm", attrs(-1), {tensor({2, 33, 5}), tensor({5}), tensor({5})}},
      {"gradient by hand",
       "LayerNormGrad",
       grad(-1),
       {values({1, 2}, {1, 3}), values({2}, {1, 1}), values({1}, {2}), values({1}, {1}), values({1, 2}, {1, 1})},
       {0, 0}},
      {"gradient",
       "LayerNormGrad",
       grad(-1),
       {tensor({5, 17}), tensor({17}), tensor({5}), positive({5}), tensor({5, 17})}},
      {"gradient of more rows than a block",
       "LayerNormGrad",
       grad(-1),
       {tensor({33, 7}), tensor({7}), tensor({33}), positive({33}), tensor({33, 7})}},
      {"gradient of two dims, accumulated",
       "LayerNormGrad",
       grad(-2, 6),
       {tensor({3, 5, 7}), tensor({5, 7}), tensor({3}), positive({3}), tensor({3, 5, 7})}},
  };
}

}  // namespace piper::ops
