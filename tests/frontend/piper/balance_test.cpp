// The cut of `balanced`, against all cuts tried one by one.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "frontend/piper/annotations.h"

using piper::frontend::balance;

namespace {

double largest(const std::vector<double>& costs, const std::vector<int64_t>& group) {
  std::vector<double> sums(static_cast<size_t>(group.back()) + 1, 0);
  for (size_t i = 0; i < costs.size(); i++) sums[static_cast<size_t>(group[i])] += costs[i];
  return *std::max_element(sums.begin(), sums.end());
}

double best_by_trial(const std::vector<double>& costs, size_t begin, int64_t groups) {
  double sum = 0;
  if (groups == 1) {
    for (size_t i = begin; i < costs.size(); i++) sum += costs[i];
    return sum;
  }
  double best = 1e300;
  for (size_t end = begin + 1; end + static_cast<size_t>(groups) - 1 <= costs.size(); end++) {
    sum += costs[end - 1];
    best = std::min(best, std::max(sum, best_by_trial(costs, end, groups - 1)));
  }
  return best;
}

}  // namespace

TEST_CASE("balance finds the least largest group", "[balance]") {
  std::mt19937 random(7);
  for (int round = 0; round < 400; round++) {
    size_t count = 1 + random() % 9;
    int64_t groups = 1 + static_cast<int64_t>(random() % count);
    std::vector<double> costs;
    for (size_t i = 0; i < count; i++) costs.push_back(static_cast<double>(random() % 5) * (random() % 3 == 0 ? 0.1 : 1));
    std::vector<int64_t> group = balance(costs, groups);
    REQUIRE(group.front() == 0);
    REQUIRE(group.back() == groups - 1);
    for (size_t i = 1; i < count; i++) REQUIRE((group[i] == group[i - 1] || group[i] == group[i - 1] + 1));
    CHECK(largest(costs, group) == Approx(best_by_trial(costs, 0, groups)));
  }
}

TEST_CASE("balance of equal costs is as even as can be, early groups lightest", "[balance]") {
  CHECK(balance({1, 1, 1, 1}, 3) == std::vector<int64_t>{0, 1, 2, 2});
  CHECK(balance({1, 1, 1, 1, 1}, 2) == std::vector<int64_t>{0, 0, 1, 1, 1});
  CHECK(balance({1, 1, 1, 1, 1, 1, 1, 1}, 3) == std::vector<int64_t>{0, 0, 1, 1, 1, 2, 2, 2});
  CHECK(balance({0, 0, 0}, 3) == std::vector<int64_t>{0, 1, 2});
  CHECK(balance({5, 1, 1, 1, 1, 1}, 2) == std::vector<int64_t>{0, 1, 1, 1, 1, 1});
}
