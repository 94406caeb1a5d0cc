#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape, double high = 3) {
  return {.shape = std::move(shape), .low = -high, .high = high};
}
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}

}  // namespace

std::vector<OpCase> swiglu_cases() {
  return {
      // silu(0) = 0 with slope 1/2; far out silu is 0 or the identity.
      {"by hand", "SwiGlu", {}, {values({3}, {0, 800, -800}), values({3}, {7, 2, 2})}, {0, 1600, 0}},
      {"rows of a sequence", "SwiGlu", {}, {tensor({3, 5, 17}), tensor({3, 5, 17})}},
      {"one element", "SwiGlu", {}, {tensor({1}), tensor({1})}},
      {"large gates", "SwiGlu", {}, {tensor({33}, 30), tensor({33})}},
      {"gradient by hand", "SwiGluGrad", {}, {values({2}, {0, 800}), values({2}, {7, 3}), values({2}, {2, 2})}, {7, 6}},
      {"gradient", "SwiGluGrad", {}, {tensor({5, 33}), tensor({5, 33}), tensor({5, 33})}},
      {"gradient of one element", "SwiGluGrad", {}, {tensor({1}), tensor({1}), tensor({1})}},
      {"gradient of large gates", "SwiGluGrad", {}, {tensor({3, 7}, 30), tensor({3, 7}), tensor({3, 7})}},
  };
}

}  // namespace piper::ops
