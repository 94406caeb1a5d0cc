#include "ops/case.h"

namespace piper::ops {

namespace {

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape)}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
ir::Attrs attrs(int64_t trans_a, int64_t trans_b, double alpha = 1) {
  return {{"alpha", alpha}, {"trans_a", trans_a}, {"trans_b", trans_b}};
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  return {
      {"by hand",
       "MatMul",
       attrs(0, 0),
       {values({2, 2}, {1, 2, 3, 4}), values({2, 2}, {5, 6, 7, 8})},
       {19, 22, 43, 50}},
      {"by hand, scaled", "MatMul", attrs(0, 1, 2), {values({1, 2}, {1, 2}), values({2, 2}, {5, 6, 7, 8})}, {34, 46}},
      {"matrices", "MatMul", attrs(0, 0), {tensor({3, 5}), tensor({5, 7})}},
      {"left transposed", "MatMul", attrs(1, 0), {tensor({5, 3}), tensor({5, 7})}},
      {"right transposed", "MatMul", attrs(0, 1), {tensor({3, 33}), tensor({17, 33})}},
      {"both transposed", "MatMul", attrs(1, 1, 0.5), {tensor({17, 5}), tensor({7, 17})}},
      {"batch", "MatMul", attrs(0, 0), {tensor({3, 5, 7}), tensor({3, 7, 2})}},
      {"batch, both transposed", "MatMul", attrs(1, 1), {tensor({2, 3, 7, 5}), tensor({2, 3, 4, 7})}},
      {"one weight for a batch", "MatMul", attrs(0, 0, 0.25), {tensor({3, 5, 7}), tensor({7, 17})}},
      {"one transposed weight for a batch", "MatMul", attrs(0, 1), {tensor({2, 3, 5, 7}), tensor({17, 7})}},
      {"one weight, batch transposed", "MatMul", attrs(1, 0), {tensor({3, 7, 5}), tensor({7, 2})}},
      {"batch on the right only", "MatMul", attrs(0, 0), {tensor({5, 7}), tensor({3, 7, 2})}},
      {"batch dims that broadcast both ways", "MatMul", attrs(0, 0), {tensor({2, 1, 3, 5}), tensor({4, 5, 3})}},
      {"batch dims of one", "MatMul", attrs(0, 1), {tensor({3, 1, 5, 7}), tensor({1, 2, 5, 7})}},
      {"accumulated", "MatMul", {{"alpha", 0.5}, {"accumulate", int64_t{1}}}, {tensor({2, 5, 7}), tensor({2, 7, 3})}},
      {"nothing to sum over", "MatMul", attrs(0, 0), {tensor({2, 0}), tensor({0, 2})}, {0, 0, 0, 0}},
      {"scores of a head", "MatMul", attrs(0, 1, 0.125), {tensor({2, 33, 16}), tensor({2, 33, 16})}},
  };
}

}  // namespace piper::ops
