// Recurrent layers against plain loops: both directions, initial states, peepholes, either form of GRU. ONNX's own tests
// are forward and start from zero.

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/ops/fake_import.h"

namespace piper::ops::test {

namespace {

using Values = std::vector<double>;
using Input = FakeImport::Input;

constexpr size_t kSteps = 3, kBatch = 2, kIn = 2, kHidden = 2;
const Dim B = Dim::batch_size();

// Numbers between -1 and 1, other ones for each `seed`.
Values numbers(size_t count, int seed) {
  Values v(count);
  for (size_t i = 0; i < count; i++) v[i] = std::sin(1.7 * static_cast<double>(i) + 2.3 * seed);
  return v;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Weights {
  Values w, r, b, h, c, p;  // of all directions, as ONNX has them
};

// Rows [gate * kHidden + j] of W and R times one sample of x and h, with both biases.
struct Gates {
  const Weights& weights;
  size_t direction, gates;
  double wx(const double* x, size_t gate, size_t j) const {
    const size_t row = gate * kHidden + j, base = direction * gates * kHidden;
    double sum = weights.b[direction * 2 * gates * kHidden + row];
    for (size_t i = 0; i < kIn; i++) sum += weights.w[(base + row) * kIn + i] * x[i];
    return sum;
  }
  double rb(size_t gate, size_t j) const {
    return weights.b[(direction * 2 + 1) * gates * kHidden + gate * kHidden + j];
  }
  double rh(const Values& h, size_t gate, size_t j) const {
    double sum = 0;
    const size_t row = direction * gates * kHidden + gate * kHidden + j;
    for (size_t i = 0; i < kHidden; i++) sum += weights.r[row * kHidden + i] * h[i];
    return sum;
  }
  double all(const double* x, const Values& h, size_t gate, size_t j) const {
    return wx(x, gate, j) + rh(h, gate, j) + rb(gate, j);
  }
};

void rnn_step(const Gates& g, const double* x, Values& h, Values&) {
  Values next(kHidden);
  for (size_t j = 0; j < kHidden; j++) next[j] = std::tanh(g.all(x, h, 0, j));
  h = next;
}

void lstm_step(const Gates& g, const double* x, Values& h, Values& c) {
  const double* p = g.weights.p.data() + g.direction * 3 * kHidden;
  Values next(kHidden);
  for (size_t j = 0; j < kHidden; j++) {
    const double in = sigmoid(g.all(x, h, 0, j) + p[j] * c[j]);
    const double forget = sigmoid(g.all(x, h, 2, j) + p[2 * kHidden + j] * c[j]);
    c[j] = forget * c[j] + in * std::tanh(g.all(x, h, 3, j));
    next[j] = sigmoid(g.all(x, h, 1, j) + p[kHidden + j] * c[j]) * std::tanh(c[j]);
  }
  h = next;
}

template <bool kLinearBeforeReset>
void gru_step(const Gates& g, const double* x, Values& h, Values&) {
  Values reset(kHidden), next(kHidden);
  for (size_t j = 0; j < kHidden; j++) reset[j] = sigmoid(g.all(x, h, 1, j)) * h[j];
  for (size_t j = 0; j < kHidden; j++) {
    const double update = sigmoid(g.all(x, h, 0, j));
    const double product = kLinearBeforeReset ? sigmoid(g.all(x, h, 1, j)) * (g.rh(h, 2, j) + g.rb(2, j))
                                              : g.rh(reset, 2, j) + g.rb(2, j);
    next[j] = (1 - update) * std::tanh(g.wx(x, 2, j) + product) + update * h[j];
  }
  h = next;
}

struct Expected {
  Values y, h, c;  // [T, D, B, H], [D, B, H] twice
};

using Step = void (*)(const Gates&, const double*, Values&, Values&);

Expected reference(Step step, size_t gates, size_t directions, bool reverse, const Values& x, const Weights& weights) {
  Expected out{Values(kSteps * directions * kBatch * kHidden), {}, {}};
  for (size_t d = 0; d < directions; d++) {
    for (size_t b = 0; b < kBatch; b++) {
      const auto at = static_cast<std::ptrdiff_t>((d * kBatch + b) * kHidden);
      Values h(weights.h.begin() + at, weights.h.begin() + at + kHidden), c(weights.c.begin() + at, weights.c.begin() + at + kHidden);
      for (size_t k = 0; k < kSteps; k++) {
        const size_t t = reverse || d == 1 ? kSteps - 1 - k : k;
        step({weights, d, gates}, &x[(t * kBatch + b) * kIn], h, c);
        std::copy(h.begin(), h.end(), out.y.begin() + static_cast<std::ptrdiff_t>(((t * directions + d) * kBatch + b) * kHidden));
      }
      out.h.insert(out.h.end(), h.begin(), h.end());
      out.c.insert(out.c.end(), c.begin(), c.end());
    }
  }
  return out;
}

void check_close(const Values& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < expected.size(); i++) CHECK(actual[i] == Approx(expected[i]).margin(1e-12));
}

void check_layer(const std::string& type, size_t gates, Step step, const std::string& direction, Attrs attrs = {}) {
  INFO(type << " " << direction);
  const size_t directions = direction == "bidirectional" ? 2 : 1, rows = gates * kHidden;
  const auto size = [](size_t n) { return Dim(static_cast<int64_t>(n)); };
  const Dim d = size(directions);
  Weights weights{numbers(directions * rows * kIn, 1),        numbers(directions * rows * kHidden, 2),
                  numbers(directions * 2 * rows, 3),          numbers(directions * kBatch * kHidden, 4),
                  numbers(directions * kBatch * kHidden, 5), numbers(directions * 3 * kHidden, 6)};
  const Values x = numbers(kSteps * kBatch * kIn, 7);
  std::vector<Input> inputs = {FakeImport::tensor({size(kSteps), B, size(kIn)}),
                               FakeImport::tensor({d, size(rows), size(kIn)}),
                               FakeImport::tensor({d, size(rows), size(kHidden)}),
                               FakeImport::tensor({d, size(2 * rows)}),
                               FakeImport::ints({size(kSteps), size(kSteps)}),
                               FakeImport::tensor({d, B, size(kHidden)})};
  std::map<size_t, Values> given = {{0, x}, {1, weights.w}, {2, weights.r}, {3, weights.b}, {5, weights.h}};
  if (gates == 4) {
    inputs.push_back(FakeImport::tensor({d, B, size(kHidden)}));
    inputs.push_back(FakeImport::tensor({d, size(3 * kHidden)}));
    given[6] = weights.c;
    given[7] = weights.p;
  }
  attrs.set("direction", direction);
  attrs.set("hidden_size", static_cast<int64_t>(kHidden));
  FakeImport node(type, 14, attrs, inputs, gates == 4 ? 3 : 2);
  REQUIRE(node.import() == "");
  const Expected expected = reference(step, gates, directions, direction == "reverse", x, weights);
  CHECK(node.result().shape == ir::Shape{size(kSteps), d, B, size(kHidden)});
  check_close(node.values(given, 0, kBatch), expected.y);
  check_close(node.values(given, 1, kBatch), expected.h);
  if (gates == 4) check_close(node.values(given, 2, kBatch), expected.c);
}

}  // namespace

TEST_CASE("recurrent layers in either direction and in both") {
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    check_layer("RNN", 1, rnn_step, direction);
    check_layer("LSTM", 4, lstm_step, direction);
    check_layer("GRU", 3, gru_step<false>, direction);
    check_layer("GRU", 3, gru_step<true>, direction, {{"linear_before_reset", int64_t{1}}});
  }
}

TEST_CASE("recurrent layers that cannot be unrolled or differ in form are refused") {
  auto error = [](Attrs attrs, ir::Shape x, ir::Shape w = {1, 8, 2}, Input lengths = FakeImport::absent()) {
    return FakeImport("LSTM", 14, std::move(attrs),
                      {FakeImport::tensor(std::move(x)), FakeImport::tensor(std::move(w)), FakeImport::tensor({1, 8, 2}),
                       FakeImport::absent(), lengths})
        .import();
  };
  CHECK(error({}, {3, B, 2}) == "");
  CHECK(error({{"layout", int64_t{1}}}, {B, 3, 2}) == "");
  CHECK(error({}, {B, 3, 2}) == "its steps run along the batch: f64[B, 3, 2]");
  CHECK(error({}, {5000, B, 2}) == "it has 5000 steps, not 1 to 4096");
  CHECK(error({}, {3, B, 2}, {1, 8, 3}) == "its weights [1, 8, 3] and [1, 8, 2] do not fit 1 direction of 2 units over f64[3, B, 2]");
  CHECK(error({{"clip", 3.0}}, {3, B, 2}) == "it clips its gates, which is not supported");
  CHECK(error({{"activations", std::string("Sigmoid Tanh Relu")}}, {3, B, 2}) == "its activation 2 is `Relu`; only `Tanh` is supported");
  CHECK(error({}, {3, B, 2}, {1, 8, 2}, FakeImport::tensor({B}, DType::kI32)) == "its samples differ in length, which is not supported");
}

}  // namespace piper::ops::test
