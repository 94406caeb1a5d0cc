// The optimizers against their formulas in f64, and sums that do not depend on threads.

#include <omp.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <random>
#include <vector>

#include "ops/update.h"

namespace piper::ops {

namespace {

std::vector<float> numbers(size_t n, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random);
  return x;
}

enum class Rule { kSgd, kMomentum, kNesterov, kAdam, kAdamW };

UpdateStep step_of(Rule rule, int64_t t) {
  UpdateStep s{.lr = 0.01 / static_cast<double>(t),
               .beta1 = 0.9,
               .beta2 = 0.98,
               .eps = 1e-8,
               .weight_decay = 0.1,
               .t = t,
               .scale = 0.5};
  if (rule == Rule::kMomentum || rule == Rule::kNesterov) s.momentum = 0.8;
  s.nesterov = rule == Rule::kNesterov;
  return s;
}

// One element in f64, as torch.optim documents it.
void plain_update(Rule rule, const UpdateStep& s, double g, double& w, double& m, double& v) {
  g *= s.scale;
  if (rule == Rule::kAdam || rule == Rule::kAdamW) {
    if (rule == Rule::kAdamW) w -= s.lr * s.weight_decay * w;
    if (rule == Rule::kAdam) g += s.weight_decay * w;
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    double t = static_cast<double>(s.t);
    w -= s.lr * (m / (1 - std::pow(s.beta1, t))) / (std::sqrt(v / (1 - std::pow(s.beta2, t))) + s.eps);
    return;
  }
  g += s.weight_decay * w;
  if (rule != Rule::kSgd) {
    m = s.t == 1 ? g : s.momentum * m + g;
    g = s.nesterov ? g + s.momentum * m : m;
  }
  w -= s.lr * g;
}

void update(Rule rule, std::vector<float>& w, const std::vector<float>& g, std::vector<float>& m, std::vector<float>& v,
            const UpdateStep& s) {
  int64_t n = static_cast<int64_t>(w.size());
  if (rule == Rule::kAdam) return adam(w.data(), g.data(), m.data(), v.data(), n, s);
  if (rule == Rule::kAdamW) return adamw(w.data(), g.data(), m.data(), v.data(), n, s);
  sgd(w.data(), g.data(), m.data(), n, s);
}

// The weights after five steps, and how far the worst is from f64.
std::vector<float> train(Rule rule, size_t n, double* worst) {
  std::vector<float> w = numbers(n, 1, 1), m(n, 0), v(n, 0);
  std::vector<double> w64(w.begin(), w.end()), m64(n, 0), v64(n, 0);
  for (int64_t t = 1; t <= 5; t++) {
    std::vector<float> g = numbers(n, static_cast<uint32_t>(t) + 10, 0.1f);
    UpdateStep s = step_of(rule, t);
    update(rule, w, g, m, v, s);
    for (size_t i = 0; i < n; i++) plain_update(rule, s, static_cast<double>(g[i]), w64[i], m64[i], v64[i]);
  }
  *worst = 0;
  for (size_t i = 0; i < n; i++) *worst = std::max(*worst, std::abs(static_cast<double>(w[i]) - w64[i]));
  return w;
}

// Runs fn with a number of threads and sets the old number again.
template <class Fn>
auto with_threads(int threads, const Fn& fn) {
  int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  auto result = fn();
  omp_set_num_threads(before);
  return result;
}

}  // namespace

TEST_CASE("optimizers follow their formulas on any number of threads", "[ops]") {
  for (Rule rule : {Rule::kSgd, Rule::kMomentum, Rule::kNesterov, Rule::kAdam, Rule::kAdamW}) {
    for (size_t n : {size_t{1}, size_t{33}, size_t{100003}}) {
      CAPTURE(static_cast<int>(rule), n);
      double worst = 0;
      std::vector<float> one = with_threads(1, [&] { return train(rule, n, &worst); });
      CHECK(worst < 1e-6);
      CHECK(one == with_threads(3, [&] { return train(rule, n, &worst); }));
    }
  }
}

TEST_CASE("sum of squares", "[ops]") {
  for (size_t n : {size_t{0}, size_t{1}, size_t{17}, size_t{8192}, size_t{100003}, size_t{3000001}}) {
    CAPTURE(n);
    std::vector<float> g = numbers(n, 4, 3);
    long double exact = 0;
    for (float x : g) exact += static_cast<long double>(x) * static_cast<long double>(x);
    const double want = static_cast<double>(exact);
    auto sum = [&](int threads) {
      return with_threads(threads, [&] {
        double s = -1, bad = -1;
        sum_of_squares(g.data(), static_cast<int64_t>(n), &s, &bad);
        CHECK(bad == 0);
        return s;
      });
    };
    CHECK(sum(1) == Approx(want).epsilon(1e-12));
    CHECK(sum(1) == sum(2));
    CHECK(sum(1) == sum(5));
  }
}

TEST_CASE("sum of squares counts what is not finite", "[ops]") {
  std::vector<float> g(20000, 1e30f);
  double sum = 0, bad = 0;
  sum_of_squares(g.data(), 20000, &sum, &bad);
  CHECK(bad == 0);
  CHECK(std::isfinite(sum));
  g[3] = NAN;
  g[17] = INFINITY;
  g[19999] = -INFINITY;
  sum_of_squares(g.data(), 20000, &sum, &bad);
  CHECK(bad == 3);
  CHECK(!std::isfinite(sum));
}

}  // namespace piper::ops
