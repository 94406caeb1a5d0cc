#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape)}; }
CaseInput positive(std::vector<int64_t> shape) { return {.shape = std::move(shape), .low = 0.5, .high = 2}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
ir::Attrs attrs(int64_t axis, double eps = 1e-6) { return {{"axis", axis}, {"eps", eps}}; }
ir::Attrs grad(int64_t axis, int64_t accumulate = 0) { return {{"axis", axis}, {"accumulate", accumulate}}; }

}  // namespace

std::vector<OpCase> rms_norm_cases() {
  return {
      // The mean square of (1, 7) is 25.
      {"by hand", "RmsNorm", attrs(-1, 0), {values({1, 2}, {1, 7}), values({2}, {5, 10})}, {1, 14}},
      {"zeros stay zeros",
       "RmsNorm",
       attrs(-1),
       {{.shape = {1, 3}, .gradient = false, .values = {0, 0, 0}}, values({3}, {1, 2, 3})},
       {0, 0, 0}},
      {"rows of a sequence", "RmsNorm", attrs(-1), {tensor({3, 5, 33}), tensor({33})}},
      {"two dims", "RmsNorm", attrs(-2, 1e-3), {tensor({5, 3, 17}), tensor({3, 17})}},
      {"whole tensor", "RmsNorm", attrs(-2), {tensor({3, 5}), tensor({3, 5})}},
      {"more rows than a block", "RmsNorm", attrs(-1), {tensor({2, 33, 5}), tensor({5})}},
      // h = (1/5, 7/5): dx = rstd (dy - h avg(dy h)) = (1 - 4/25, 1 - 28/25) / 5.
      {"gradient by hand",
       "RmsNormGrad",
       grad(-1),
       {values({1, 2}, {1, 7}), values({2}, {1, 1}), values({1}, {0.2}), values({1, 2}, {1, 1})},
       {0.168, -0.024}},
      {"gradient", "RmsNormGrad", grad(-1), {tensor({5, 17}), tensor({17}), positive({5}), tensor({5, 17})}},
      {"gradient of more rows than a block",
       "RmsNormGrad",
       grad(-1),
       {tensor({33, 7}), tensor({7}), positive({33}), tensor({33, 7})}},
      {"gradient of two dims, accumulated",
       "RmsNormGrad",
       grad(-2, 2),
       {tensor({3, 5, 7}), tensor({5, 7}), positive({3}), tensor({3, 5, 7})}},
  };
}

}  // namespace piper::ops
