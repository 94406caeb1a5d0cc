#include <cmath>

#include "ops/case.h"

namespace piper::ops {

namespace {

using ir::DType;

CaseInput tensor(std::vector<int64_t> shape) { return {.shape = std::move(shape)}; }
CaseInput values(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .values = std::move(v)};
}
CaseInput additive(std::vector<int64_t> shape) { return {.shape = std::move(shape), .low = -2, .high = 2}; }
CaseInput additive(std::vector<int64_t> shape, std::vector<double> v) {
  return {.shape = std::move(shape), .gradient = false, .values = std::move(v)};
}
CaseInput keep(std::vector<int64_t> shape, std::vector<double> v = {}) {
  return {
      .dtype = DType::kBool, .shape = std::move(shape), .gradient = false, .low = 0, .high = 2, .values = std::move(v)};
}
ir::Attrs attrs(int64_t causal, double scale = 0.5) { return {{"causal", causal}, {"scale", scale}}; }

// q, k, v of shapes [b,h,s,d], [b,g,t,d], [b,g,t,e].
std::vector<CaseInput> qkv(int64_t b, int64_t h, int64_t g, int64_t s, int64_t t, int64_t d, int64_t e) {
  return {tensor({b, h, s, d}), tensor({b, g, t, d}), tensor({b, g, t, e})};
}
std::vector<CaseInput> with(std::vector<CaseInput> inputs, CaseInput mask) {
  inputs.push_back(std::move(mask));
  return inputs;
}

// Two keys with scores 0 and log 3 for every query: probabilities 1/4 and 3/4.
std::vector<CaseInput> known(int64_t queries) {
  return {values({1, 1, queries, 1}, std::vector<double>(static_cast<size_t>(queries), 1)),
          values({1, 1, 2, 1}, {0, std::log(3.0)}), values({1, 1, 2, 2}, {4, 8, 8, 0})};
}

std::vector<OpCase> forward() {
  const std::string op = "Attention";
  const double no = -INFINITY;
  return {
      {"by hand", op, attrs(0, 1), known(1), {7, 2}},
      {"by hand, causal", op, attrs(1, 1), known(2), {4, 8, 7, 2}},
      {"by hand, bool mask", op, attrs(0, 1), with(known(2), keep({2, 2}, {1, 1, 0, 1})), {7, 2, 8, 0}},
      {"by hand, additive mask", op, attrs(0, 1), with(known(2), additive({1, 2}, {std::log(3.0), 0})), {6, 4, 6, 4}},
      {"a row that sees nothing is zero", op, attrs(0, 1), with(known(2), keep({2, 2}, {0, 0, 1, 1})), {0, 0, 7, 2}},
      {"a row that sees nothing, additive",
       op,
       attrs(0, 1),
       with(known(2), additive({2, 2}, {no, no, 0, 0})),
       {0, 0, 7, 2}},
      {"one head", op, attrs(0), qkv(1, 1, 1, 5, 5, 3, 3)},
      {"heads", op, attrs(0), qkv(2, 3, 3, 7, 7, 5, 5)},
      {"causal", op, attrs(1), qkv(2, 2, 2, 17, 17, 7, 7)},
      {"causal, more keys than queries", op, attrs(1), qkv(1, 2, 2, 5, 17, 3, 3)},
      {"causal, more queries than keys", op, attrs(1), qkv(1, 1, 1, 17, 5, 3, 3)},
      {"values of another width", op, attrs(0), qkv(1, 2, 2, 5, 7, 3, 17)},
      {"grouped heads", op, attrs(0), qkv(2, 4, 2, 5, 5, 3, 3)},
      {"one key head for all, causal", op, attrs(1), qkv(1, 3, 1, 7, 7, 16, 16)},
      {"bool mask of every head", op, attrs(0), with(qkv(2, 2, 2, 5, 7, 3, 3), keep({2, 2, 5, 7}))},
      {"bool mask of samples, grouped heads", op, attrs(0),
       with(qkv(2, 4, 2, 3, 5, 3, 3), keep({2, 1, 1, 5}, {1, 1, 1, 0, 0, 1, 1, 1, 1, 0}))},
      {"additive mask", op, attrs(0), with(qkv(2, 2, 1, 5, 7, 3, 3), additive({5, 7}))},
      {"additive mask of heads, causal", op, attrs(1), with(qkv(2, 2, 2, 5, 5, 3, 3), additive({2, 5, 5}))},
      {"additive mask, one for all keys", op, attrs(0), with(qkv(1, 2, 2, 5, 3, 3, 3), additive({2, 5, 1}))},
      {"more rows than a block", op, attrs(1, 0.25), qkv(1, 1, 1, 101, 101, 2, 1)},
  };
}

// lse is any number here: the backward pass takes what the forward pass gave it, and f32 must agree with f64.
std::vector<OpCase> backward() {
  const std::string op = "AttentionGrad";
  const CaseInput none{.present = false};
  const double log4 = std::log(4.0);
  auto all = [](std::vector<CaseInput> inputs, CaseInput mask, int64_t b, int64_t h, int64_t s, int64_t e) {
    inputs.push_back(std::move(mask));
    inputs.push_back(tensor({b, h, s, e}));
    inputs.push_back({.shape = {b, h, s}, .low = 1, .high = 3});
    inputs.push_back(tensor({b, h, s, e}));
    return inputs;
  };
  std::vector<CaseInput> hand = known(1);
  for (const CaseInput& input :
       {none, values({1, 1, 1, 2}, {7, 2}), values({1, 1, 1}, {log4}), values({1, 1, 1, 2}, {1, 0})}) {
    hand.push_back(input);
  }
  return {
      // dq = sum_j p_j (dout v_j - 7) k_j = 3/4 (8 - 7) log 3.
      {"by hand", op, attrs(0, 1), hand, {0.75 * std::log(3.0)}},
      {"heads", op, attrs(0), all(qkv(2, 3, 3, 7, 5, 3, 5), none, 2, 3, 7, 5)},
      {"causal", op, attrs(1), all(qkv(1, 2, 2, 17, 17, 16, 16), none, 1, 2, 17, 16)},
      {"grouped heads", op, attrs(1), all(qkv(2, 6, 2, 7, 7, 3, 3), none, 2, 6, 7, 3)},
      {"bool mask", op, attrs(0), all(qkv(2, 2, 1, 5, 7, 3, 3), keep({5, 7}), 2, 2, 5, 3)},
      {"additive mask", op, attrs(0), all(qkv(2, 2, 2, 5, 7, 3, 3), additive({2, 1, 1, 7}), 2, 2, 5, 3)},
      {"more rows than a block", op, attrs(1, 0.25), all(qkv(1, 2, 1, 101, 101, 33, 17), none, 1, 2, 101, 17)},
  };
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases = forward();
  for (OpCase& c : backward()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace piper::ops
