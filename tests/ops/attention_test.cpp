// Attention against the plain formula, which makes the whole score matrix.

#include <catch2/catch.hpp>

#include <cmath>
#include <random>

#include "ops/evaluate.h"

namespace piper::ops {

namespace {

using ir::DType;

struct Sizes {
  int64_t b, h, g, s, t, d, e;
  bool causal;
  std::vector<int64_t> mask;  // shape of a boolean mask, empty for none
};

Tensor random_tensor(DType dtype, std::vector<int64_t> shape, std::mt19937& random) {
  Tensor x = make_tensor(dtype, std::move(shape));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < x.elements(); i++) {
    set_number(x, i, dtype == DType::kBool ? uniform(random) > -0.5f : uniform(random));
  }
  return x;
}

// Element (b, h, i, j) of a mask that broadcasts to four dims.
bool keeps(const Tensor& mask, const std::vector<int64_t>& at) {
  int64_t index = 0;
  for (size_t i = 0; i < mask.shape.size(); i++) {
    int64_t size = mask.shape[i];
    index = index * size + (size == 1 ? 0 : at[4 - mask.shape.size() + i]);
  }
  return get_number(mask, index) != 0;
}

std::vector<double> plain_attention(const Sizes& z, double scale, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor* mask) {
  std::vector<double> out;
  for (int64_t row = 0; row < z.b * z.h * z.s; row++) {
    int64_t b = row / (z.h * z.s), h = row / z.s % z.h, i = row % z.s;
    int64_t key_head = b * z.g + h / (z.h / z.g);
    std::vector<double> weight(static_cast<size_t>(z.t), 0);
    double sum = 0;
    for (int64_t j = 0; j < z.t; j++) {
      if ((z.causal && j > i) || (mask && !keeps(*mask, {b, h, i, j}))) continue;
      double score = 0;
      for (int64_t c = 0; c < z.d; c++)
        score += get_number(q, row * z.d + c) * get_number(k, (key_head * z.t + j) * z.d + c);
      sum += weight[static_cast<size_t>(j)] = std::exp(scale * score);
    }
    for (int64_t c = 0; c < z.e; c++) {
      double x = 0;
      for (int64_t j = 0; j < z.t; j++)
        x += weight[static_cast<size_t>(j)] * get_number(v, (key_head * z.t + j) * z.e + c);
      out.push_back(sum > 0 ? x / sum : 0);
    }
  }
  return out;
}

void check(const Sizes& z, DType dtype, double tolerance) {
  std::mt19937 random(5);
  const double scale = 1.5;
  Tensor q = random_tensor(dtype, {z.b, z.h, z.s, z.d}, random);
  Tensor k = random_tensor(dtype, {z.b, z.g, z.t, z.d}, random);
  Tensor v = random_tensor(dtype, {z.b, z.g, z.t, z.e}, random);
  Tensor mask = random_tensor(DType::kBool, z.mask, random);
  bool masked = !z.mask.empty();
  ir::Attrs attrs{{"causal", int64_t{z.causal}}, {"scale", scale}};
  std::vector<ir::TensorType> types{{dtype, {z.b, z.h, z.s, z.e}}, {dtype, {z.b, z.h, z.s}}};
  auto got = run_kernel("Attention", attrs, {&q, &k, &v, masked ? &mask : nullptr}, types);
  REQUIRE(got.has_value());
  std::vector<double> want = plain_attention(z, scale, q, k, v, masked ? &mask : nullptr);
  double worst = 0;
  for (size_t i = 0; i < want.size(); i++) {
    worst = std::max(worst, std::abs(want[i] - get_number((*got)[0], static_cast<int64_t>(i))));
  }
  CHECK(worst < tolerance);
}

}  // namespace

TEST_CASE("attention is the plain formula", "[ops]") {
  for (const Sizes& z : {Sizes{2, 3, 3, 7, 7, 5, 5, false, {}}, Sizes{1, 4, 2, 33, 33, 16, 16, true, {}},
                         Sizes{2, 4, 1, 101, 101, 8, 32, true, {}}, Sizes{1, 2, 2, 5, 130, 3, 17, false, {}},
                         Sizes{1, 1, 1, 40, 9, 4, 4, true, {}}, Sizes{2, 4, 2, 17, 19, 4, 4, false, {2, 1, 17, 19}},
                         Sizes{2, 2, 2, 17, 17, 4, 4, true, {2, 1, 17}}, Sizes{2, 2, 2, 7, 5, 4, 4, false, {5}},
                         Sizes{1, 2, 2, 130, 300, 64, 64, false, {}}}) {
    CAPTURE(z.b, z.h, z.g, z.s, z.t, z.d, z.e, z.causal);
    check(z, DType::kF64, 1e-12);
    check(z, DType::kF32, 1e-5);
  }
}

TEST_CASE("attention shows a NaN", "[ops]") {
  std::mt19937 random(5);
  Tensor q = random_tensor(DType::kF32, {1, 1, 3, 4}, random), k = q, v = q;
  for (int64_t i = 0; i < 4; i++) set_number(q, 4 + i, NAN);
  auto got = run_kernel("Attention", {{"causal", int64_t{1}}}, {&q, &k, &v},
                        {{DType::kF32, {1, 1, 3, 4}}, {DType::kF32, {1, 1, 3}}});
  REQUIRE(got.has_value());
  CHECK(std::isfinite(get_number((*got)[0], 0)));
  CHECK(std::isnan(get_number((*got)[0], 4)));
  CHECK(std::isfinite(get_number((*got)[0], 8)));
}

}  // namespace piper::ops
