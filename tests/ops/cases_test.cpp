// All cases of all ops: known answers, f32 against f64, any number of threads, accumulation.

#include <catch2/catch.hpp>
#include <omp.h>

#include <cmath>

#include "tests/ops/harness.h"

namespace piper::ops::test {

namespace {

using ir::DType;

// Largest |a - b| over the largest |b|; infinite where one is NaN and the other is not.
double difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape == b.shape);
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < a.elements(); i++) {
    const double x = get_number(a, i), y = get_number(b, i);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x == y) {
      if (std::isfinite(y)) largest = std::max(largest, std::abs(y));
      continue;
    }
    if (!std::isfinite(x) || !std::isfinite(y)) return INFINITY;
    worst = std::max(worst, std::abs(x - y));
    largest = std::max(largest, std::abs(y));
  }
  return worst == 0 ? 0 : worst / std::max(largest, 1e-30);
}

struct Threads {
  explicit Threads(int count) : before(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before); }
  int before;
};

}  // namespace

TEST_CASE("kernels give the answers that are known") {
  for (const OpCase& c : all_cases()) {
    if (c.expected.empty()) continue;
    INFO(c.op << ": " << c.name);
    const Tensor y = run_case(c, inputs_of(c, DType::kF64))[0];
    REQUIRE(y.elements() == static_cast<int64_t>(c.expected.size()));
    Tensor expected = y;
    for (int64_t i = 0; i < y.elements(); i++) set_number(expected, i, c.expected[static_cast<size_t>(i)]);
    CHECK(difference(y, expected) < 1e-6);
    if (!ir::is_float(y.dtype)) CHECK(y.bytes == expected.bytes);
  }
}

TEST_CASE("kernels in f32 agree with those in f64") {
  for (const OpCase& c : all_cases()) {
    INFO(c.op << ": " << c.name);
    const std::vector<Tensor> exact = run_case(c, inputs_of(c, DType::kF64)), rounded = run_case(c, inputs_of(c, DType::kF32));
    REQUIRE(exact.size() == rounded.size());
    for (size_t i = 0; i < exact.size(); i++) {
      INFO("output " << i);
      CHECK(difference(rounded[i], exact[i]) <= c.f32_tolerance);
    }
  }
}

TEST_CASE("results have the same bits on any number of threads") {
  for (const OpCase& c : all_cases()) {
    INFO(c.op << ": " << c.name);
    const std::vector<Tensor> inputs = inputs_of(c, DType::kF32);
    std::vector<Tensor> alone;
    {
      Threads one(1);
      alone = run_case(c, inputs);
    }
    for (int count : {2, 3, 5}) {
      Threads several(count);
      const std::vector<Tensor> together = run_case(c, inputs);
      for (size_t i = 0; i < alone.size(); i++) CHECK(together[i].bytes == alone[i].bytes);
    }
  }
}

TEST_CASE("kernels that accumulate add to what is there") {
  for (const OpCase& c : all_cases()) {
    const uint32_t mask = find_op(c.op)->accumulates;
    if (mask == 0) continue;
    INFO(c.op << ": " << c.name);
    const std::vector<Tensor> inputs = inputs_of(c, DType::kF64);
    RunOptions plain{.attrs = c.attrs}, adding{.attrs = c.attrs};
    if (c.op != "Accumulate") plain.attrs.erase("accumulate");
    adding.attrs.set("accumulate", static_cast<int64_t>(mask));
    const std::vector<Tensor> written = run_case(c, inputs, plain);
    adding.outputs = written;
    for (Tensor& tensor : adding.outputs) {
      for (int64_t i = 0; i < tensor.elements(); i++) set_number(tensor, i, static_cast<double>(i % 7) + 1);
    }
    const std::vector<Tensor> added = run_case(c, inputs, adding);
    for (size_t o = 0; o < added.size(); o++) {
      Tensor expected = written[o];
      if (mask >> o & 1) {
        for (int64_t i = 0; i < expected.elements(); i++) {
          set_number(expected, i, get_number(expected, i) + static_cast<double>(i % 7) + 1);
        }
      }
      INFO("output " << o);
      CHECK(difference(added[o], expected) < 1e-12);
    }
  }
}

}  // namespace piper::ops::test
