// Einsum against its definition: the sum over all labels that the output lacks.

#include <catch2/catch.hpp>

#include <random>
#include <set>

#include "tests/ops/fake_import.h"

namespace piper::ops::test {

namespace {

using Values = std::vector<double>;

struct Equation {
  std::string text;
  // The same with a letter for every dim, for the reference.
  std::vector<std::string> terms;
  std::string output;
  std::map<char, int64_t> sizes;
};

int64_t offset(const std::string& term, const std::map<char, int64_t>& sizes, const std::map<char, int64_t>& at) {
  int64_t result = 0;
  for (char label : term) result = result * sizes.at(label) + at.at(label);
  return result;
}

// Every combination of all labels, once.
Values by_definition(const Equation& e, const std::vector<Values>& operands) {
  int64_t total = 1, elements = 1;
  for (auto [label, size] : e.sizes) total *= size;
  for (char label : e.output) elements *= e.sizes.at(label);
  Values y(static_cast<size_t>(elements), 0);
  for (int64_t i = 0; i < total; i++) {
    std::map<char, int64_t> at;
    int64_t rest = i;
    for (auto [label, size] : e.sizes) {
      at[label] = rest % size;
      rest /= size;
    }
    double product = 1;
    for (size_t k = 0; k < operands.size(); k++) product *= operands[k][static_cast<size_t>(offset(e.terms[k], e.sizes, at))];
    y[static_cast<size_t>(offset(e.output, e.sizes, at))] += product;
  }
  return y;
}

std::string error_of(const std::string& equation, std::vector<ir::Shape> shapes) {
  std::vector<FakeImport::Input> inputs;
  for (const ir::Shape& shape : shapes) inputs.push_back(FakeImport::tensor(shape));
  return FakeImport("Einsum", 12, {{"equation", equation}}, inputs).import();
}

}  // namespace

TEST_CASE("Einsum is the sum of products that its equation says") {
  const std::map<char, int64_t> s{{'a', 2}, {'b', 3}, {'c', 4}, {'d', 5}};
  const auto only = [&](const std::string& labels) {
    std::map<char, int64_t> sizes;
    for (char label : labels) sizes[label] = s.at(label);
    return sizes;
  };
  const std::vector<Equation> equations = {
      {"ab,bc->ac", {"ab", "bc"}, "ac", only("abc")},
      {"ab, cb -> ca", {"ab", "cb"}, "ca", only("abc")},
      {"abc,acd->abd", {"abc", "acd"}, "abd", only("abcd")},
      {"abcd,acbd->abcd", {"abcd", "acbd"}, "abcd", only("abcd")},
      {"ab,cd->dacb", {"ab", "cd"}, "dacb", only("abcd")},
      {"ab,ab->", {"ab", "ab"}, "", only("ab")},
      {"ab->ba", {"ab"}, "ba", only("ab")},
      {"abc->b", {"abc"}, "b", only("abc")},
      {"aab->ba", {"aab"}, "ba", only("ab")},
      {"bcb,b->c", {"bcb", "b"}, "c", only("bc")},
      {"aaa->a", {"aaa"}, "a", only("a")},
      {"ba", {"ba"}, "ab", only("ab")},
      {"ab,bc", {"ab", "bc"}, "ac", only("abc")},
      {"ab,bc,cd->ad", {"ab", "bc", "cd"}, "ad", only("abcd")},
      {"ab,ac,ad->a", {"ab", "ac", "ad"}, "a", only("abcd")},
      {"abd,cd->abc", {"abd", "cd"}, "abc", only("abcd")},
      {"...b,bc->...c", {"adb", "bc"}, "adc", only("abcd")},
      {"a...,b...->ba...", {"acd", "bcd"}, "bacd", only("abcd")},
      {"a...->...a", {"abc"}, "bca", only("abc")},
      {"...b,...b", {"acb", "cb"}, "ac", only("abc")},
  };
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const Equation& e : equations) {
    INFO(e.text);
    std::vector<FakeImport::Input> inputs;
    std::vector<Values> operands;
    std::map<size_t, Values> given;
    for (const std::string& term : e.terms) {
      ir::Shape shape;
      int64_t n = 1;
      for (char label : term) {
        shape.push_back(e.sizes.at(label));
        n *= e.sizes.at(label);
      }
      Values x(static_cast<size_t>(n));
      for (double& v : x) v = uniform(random);
      given[inputs.size()] = x;
      operands.push_back(std::move(x));
      inputs.push_back(FakeImport::tensor(shape));
    }
    FakeImport op("Einsum", 12, {{"equation", e.text}}, inputs);
    REQUIRE(op.import() == "");
    ir::Shape shape;
    for (char label : e.output) shape.push_back(e.sizes.at(label));
    CHECK(op.result().shape == shape);
    const Values y = op.values(given), expected = by_definition(e, operands);
    REQUIRE(y.size() == expected.size());
    for (size_t i = 0; i < y.size(); i++) CHECK(y[i] == Approx(expected[i]).margin(1e-12));
  }
}

TEST_CASE("Einsum broadcasts dims of 1 under dots, and keeps samples apart") {
  FakeImport op("Einsum", 12, {{"equation", std::string("...a,...a->...")}}, {FakeImport::tensor({1, 2, 2}), FakeImport::tensor({2, 1, 2})});
  REQUIRE(op.import() == "");
  CHECK(op.values({{0, {1, 2, 3, 4}}, {1, {1, 10, 2, 0}}}) == Values{21, 43, 2, 6});
  const Dim batch = Dim::batch_size();
  FakeImport attention("Einsum", 12, {{"equation", std::string("bhqd,bhkd->bhqk")}}, {FakeImport::tensor({batch, 2, 3, 4}), FakeImport::tensor({batch, 2, 5, 4})});
  REQUIRE(attention.import() == "");
  CHECK(attention.result().shape == ir::Shape{batch, 2, 3, 5});
  CHECK(std::set<std::string>(attention.kinds.begin(), attention.kinds.end()).count("MatMul") == 1);
}

TEST_CASE("equations that are wrong") {
  CHECK(error_of("ab,bc->ac", {{2, 3}, {4, 5}}).find("gives `b` two sizes: 3 and 4") != std::string::npos);
  CHECK(error_of("...a,...a->...a", {{2, 3}, {4, 3}}).find("gives `...` two sizes: 2 and 4") != std::string::npos);
  CHECK(error_of("abc->a", {{2, 3}}).find("names 3 dims") != std::string::npos);
  CHECK(error_of("ab->a", {{2, 3}, {2}}).find("fewer terms") != std::string::npos);
  CHECK(error_of("ab,a->a", {{2, 3}}).find("more terms") != std::string::npos);
  CHECK(error_of("ab->az", {{2, 3}}).find("no output dim for `z`") != std::string::npos);
  CHECK(error_of("ab->aa", {{2, 3}}).find("no output dim for `a`") != std::string::npos);
  const Dim batch = Dim::batch_size();
  CHECK(error_of("aab->ab", {{batch, batch, 3}}).find("diagonal through the samples") != std::string::npos);
  CHECK(error_of("a+->a", {{2, 3}}).find("has a `+`") != std::string::npos);
}

}  // namespace piper::ops::test
