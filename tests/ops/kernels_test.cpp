// What kernels promise beyond their cases: vector functions at the edges, indices out of range, dropout under any cut.

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <set>

#include "ops/cpu/vector_math.h"
#include "ops/philox.h"
#include "tests/ops/harness.h"

namespace piper::ops::test {

namespace {

using ir::DType;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> apply(vec::Unary f, std::vector<float> x) {
  vec::unary(f, x.data(), x.data(), static_cast<int64_t>(x.size()));
  return x;
}

struct Accuracy {
  vec::Unary f;
  double (*exact)(double);
  double low, high;
};

// The part [start, start + samples) of a batch through dropout.
std::vector<float> dropped(const std::vector<float>& batch, int64_t per_sample, int64_t start, int64_t samples, uint64_t seed = 3,
                           int64_t step = 2, int64_t key = 5) {
  OpCase c{"", "Dropout", {{"ratio", 0.25}, {"key", key}, {"outer", int64_t{1}}, {"inner", per_sample}}, {{.shape = {samples, per_sample}}}};
  std::vector<Tensor> inputs = {make_tensor(DType::kF32, {samples, per_sample})};
  std::copy_n(batch.begin() + start * per_sample, samples * per_sample, inputs[0].as<float>());
  RunOptions options{.attrs = c.attrs};
  options.context.seed = seed;
  options.context.step = step;
  options.context.sample_start = start;
  const Tensor y = run_case(c, inputs, options)[0];
  return std::vector<float>(y.as<float>(), y.as<float>() + y.elements());
}

}  // namespace

TEST_CASE("vector functions are accurate to a few units in the last place") {
  const Accuracy kFunctions[] = {
      {vec::Unary::kExp, std::exp, -86, 88},
      {vec::Unary::kLog, std::log, 1.5, 1e6},
      {vec::Unary::kTanh, std::tanh, -11, 11},
      {vec::Unary::kErf, std::erf, -5, 5},
      {vec::Unary::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80},
      {vec::Unary::kSoftplus, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }, -80, 80},
      {vec::Unary::kSqrt, std::sqrt, 0, 100},
  };
  constexpr int kPoints = 20011;
  for (const Accuracy& a : kFunctions) {
    INFO("function " << static_cast<int>(a.f));
    std::vector<float> x(kPoints);
    for (int i = 0; i < kPoints; i++) x[static_cast<size_t>(i)] = static_cast<float>(a.low + (a.high - a.low) * i / (kPoints - 1));
    const std::vector<float> y = apply(a.f, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); i++) {
      const double exact = a.exact(x[i]);
      if (exact != 0) worst = std::max(worst, std::abs(y[i] / exact - 1));
    }
    CHECK(worst < 5e-7);
  }
}

TEST_CASE("vector functions follow libm at the edges") {
  auto same = [](const std::vector<float>& y, const std::vector<float>& expected) {
    for (size_t i = 0; i < y.size(); i++) {
      INFO("at " << i << ": " << y[i] << ", expected " << expected[i]);
      CHECK((y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i]))));
    }
  };
  same(apply(vec::Unary::kExp, {kNaN, kInf, -kInf, 1000, -1000, 0}), {kNaN, kInf, 0, kInf, 0, 1});
  same(apply(vec::Unary::kLog, {kNaN, kInf, -1, 0, 1}), {kNaN, kInf, kNaN, -kInf, 0});
  same(apply(vec::Unary::kTanh, {kNaN, kInf, -kInf, 0}), {kNaN, 1, -1, 0});
  same(apply(vec::Unary::kErf, {kNaN, kInf, -kInf, 0}), {kNaN, 1, -1, 0});
  same(apply(vec::Unary::kSigmoid, {kNaN, kInf, -kInf, 0}), {kNaN, 1, 0, 0.5});
  same(apply(vec::Unary::kSoftplus, {kNaN, kInf, -kInf, 200}), {kNaN, kInf, 0, 200});
  same(apply(vec::Unary::kRelu, {kNaN, kInf, -kInf}), {kNaN, kInf, 0});
  same(apply(vec::Unary::kGelu, {kNaN, 100, -100}), {kNaN, 100, 0});
  same(apply(vec::Unary::kGeluTanh, {kNaN, 100, -100}), {kNaN, 100, 0});
  const std::vector<float> x = {1, kNaN, 3};
  CHECK(std::isnan(vec::max(x.data(), 3)));
  CHECK(std::isnan(vec::min(x.data(), 3)));
  CHECK(vec::max(x.data(), 0) == -kInf);
}

TEST_CASE("an element's value does not depend on where it stands") {
  std::vector<float> x(101);
  for (size_t i = 0; i < x.size(); i++) x[i] = 0.07f * static_cast<float>(i) - 3;
  for (vec::Unary f : {vec::Unary::kExp, vec::Unary::kTanh, vec::Unary::kGelu, vec::Unary::kSilu}) {
    const std::vector<float> whole = apply(f, x);
    for (size_t i = 0; i < x.size(); i++) CHECK(apply(f, {x[i]})[0] == whole[i]);
  }
}

TEST_CASE("an index out of range gives NaN") {
  for (const char* op : {"Gather", "GatherElements"}) {
    const OpCase c{"", op, {{"axis", int64_t{0}}}, {{.shape = {3}, .values = {1, 2, 3}}, {.dtype = DType::kI64, .shape = {3}, .values = {3, -4, 2}}}};
    const Tensor y = run_case(c, inputs_of(c, DType::kF32))[0];
    CHECK(std::isnan(get_number(y, 0)));
    CHECK(std::isnan(get_number(y, 1)));
    CHECK(get_number(y, 2) == 3);
  }
}

TEST_CASE("dropout is the same for a sample in any cut of the batch") {
  constexpr int64_t kPerSample = 37, kSamples = 9;
  std::vector<float> batch(static_cast<size_t>(kPerSample * kSamples), 1);
  const std::vector<float> whole = dropped(batch, kPerSample, 0, kSamples);
  for (int64_t cut : {1, 4, 8}) {
    std::vector<float> parts = dropped(batch, kPerSample, 0, cut);
    const std::vector<float> rest = dropped(batch, kPerSample, cut, kSamples - cut);
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
  }
}

TEST_CASE("dropout in the middle of a shape keys by sample too") {
  // [outer 2, samples, inner 3]: sample 1 alone is its slice of the batch.
  const ir::Attrs attrs{{"ratio", 0.5}, {"key", int64_t{1}}, {"outer", int64_t{2}}, {"inner", int64_t{3}}};
  Tensor batch = make_tensor(DType::kF64, {2, 4, 3}), one = make_tensor(DType::kF64, {2, 1, 3});
  for (int64_t i = 0; i < batch.elements(); i++) set_number(batch, i, 1);
  for (int64_t i = 0; i < one.elements(); i++) set_number(one, i, 1);
  RunContext context{.seed = 9};
  const Tensor y = run_kernel("Dropout", attrs, {&batch}, {type_of(batch)}, 1, context)->front();
  context.sample_start = 1;
  const Tensor part = run_kernel("Dropout", attrs, {&one}, {type_of(one)}, 1, context)->front();
  for (int64_t o = 0; o < 2; o++) {
    for (int64_t i = 0; i < 3; i++) CHECK(get_number(part, o * 3 + i) == get_number(y, (o * 4 + 1) * 3 + i));
  }
}

TEST_CASE("dropout keeps the expected share and scales it") {
  const std::vector<float> batch(40000, 1);
  const std::vector<float> y = dropped(batch, 400, 0, 100);
  double kept = 0;
  for (float v : y) {
    CHECK((v == 0 || v == Approx(1 / 0.75)));
    kept += v != 0;
  }
  CHECK(kept / 40000 == Approx(0.75).margin(0.01));
  CHECK(dropped(batch, 400, 0, 100) == y);
  CHECK(dropped(batch, 400, 0, 100, 4) != y);
  CHECK(dropped(batch, 400, 0, 100, 3, 3) != y);
  CHECK(dropped(batch, 400, 0, 100, 3, 2, 6) != y);
}

TEST_CASE("philox gives the published numbers") {
  // The known answers that come with Random123: all zeros, all ones, digits of pi.
  CHECK(philox({0, 0, 0, 0}, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("vectors of random words are those of the scalar form") {
  const PhiloxStream random(1, 2, 3);
  const uint64_t sample = (uint64_t{5} << 32) + 6;
  for (uint64_t first : {uint64_t{0}, uint64_t{7}, (uint64_t{1} << 32) - 3}) {
    std::vector<uint32_t> words(4 * 21);
    vec::philox_words(random.key(), sample, first, 21, words.data());
    for (size_t i = 0; i < words.size(); i++) CHECK(words[i] == random.word(sample, 4 * first + i));
  }
}

TEST_CASE("a kernel that does not exist is refused") {
  KernelSpec spec{"Exp", {}, {{true, DType::kI64, {2}}}, {{true, DType::kI64, {2}}}};
  CHECK(make_cpu_kernel(spec) == nullptr);
  const Tensor x = make_tensor(DType::kI64, {2});
  auto y = run_kernel("Exp", {}, {&x}, {type_of(x)});
  REQUIRE_FALSE(y.has_value());
  CHECK(y.error().message == "there is no CPU kernel of `Exp` for i64");
}

}  // namespace piper::ops::test
