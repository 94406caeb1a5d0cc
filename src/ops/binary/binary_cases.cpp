#include "ops/case.h"

namespace piper::ops {

namespace {

using ir::DType;
using Values = std::vector<double>;

OpCase pair(std::string name, std::string op, std::vector<int64_t> a, std::vector<int64_t> b, double low = -2,
            double high = 2) {
  return {std::move(name), std::move(op), {},
          {{.shape = std::move(a), .low = low, .high = high}, {.shape = std::move(b), .low = low, .high = high}}};
}

OpCase known(std::string name, std::string op, DType dtype, Values a, Values b, Values y, bool gradient = false) {
  const int64_t n = static_cast<int64_t>(a.size()), m = static_cast<int64_t>(b.size());
  return {std::move(name), std::move(op), {},
          {{.dtype = dtype, .shape = {n}, .gradient = gradient, .values = std::move(a)},
           {.dtype = dtype, .shape = {m}, .gradient = gradient, .values = std::move(b)}},
          std::move(y)};
}

void add_arithmetic(std::vector<OpCase>& cases) {
  for (const char* name : {"Add", "Sub", "Mul", "Div", "Max", "Min"}) {
    const std::string op = name;
    const double low = op == "Div" ? 0.5 : -2;
    cases.push_back(pair(op + " of equal shapes", op, {3, 5}, {3, 5}, low));
    cases.push_back(pair(op + " of a row", op, {2, 3, 7}, {7}, low));
    cases.push_back(pair(op + " of a column", op, {4, 1}, {4, 5}, low));
    cases.push_back(pair(op + " both ways", op, {3, 1, 5}, {4, 1}, low));
    cases.push_back(pair(op + " of a scalar", op, {}, {3, 3}, low));
    cases.push_back(pair(op + " of a middle dim", op, {2, 3, 5}, {1, 3, 1}, low));
    cases.push_back(pair(op + " of two scalars", op, {}, {}, low));
    cases.push_back(pair(op + " of [1] and a scalar", op, {1}, {}, low));
    cases.push_back(pair(op + " longer than a piece", op, {9, 1000}, {9, 1}, low));
    for (CaseInput& input : cases.back().inputs) input.gradient = false;
  }
  cases.push_back(known("Add of i64", "Add", DType::kI64, {1, -2, 3}, {4, 5, -6}, {5, 3, -3}));
  cases.push_back(known("Sub of i32", "Sub", DType::kI32, {1, -2, 3}, {4}, {-3, -6, -1}));
  cases.push_back(known("Mul of i64", "Mul", DType::kI64, {1, -2, 3}, {4, 5, -6}, {4, -10, -18}));
  cases.push_back(known("Div of integers truncates", "Div", DType::kI64, {7, -7, 7, 5}, {2, 2, -2, 0}, {3, -3, -3, 0}));
  cases.push_back(known("Max of i64", "Max", DType::kI64, {1, -2}, {0}, {1, 0}));
  cases.push_back(known("Min of i64", "Min", DType::kI64, {1, -2}, {0}, {0, -2}));
  cases.push_back(known("Max with a negative zero", "Max", DType::kF64, {1, -3}, {2, -4}, {2, -3}, true));
  cases.push_back(known("Mul keeps the order of a broadcast", "Mul", DType::kF64, {1, 2, 3}, {2}, {2, 4, 6}, true));
}

void add_mod_and_pow(std::vector<OpCase>& cases) {
  OpCase fmod = known("Mod with fmod keeps the dividend's sign", "Mod", DType::kF64, {5.5, -5.5, 7.25}, {2, 2, -3},
                      {1.5, -1.5, 1.25}, true);
  fmod.attrs.set("fmod", int64_t{1});
  cases.push_back(fmod);
  OpCase integers = fmod;
  integers.name = "Mod with fmod of integers";
  integers.inputs[0] = {.dtype = DType::kI64, .shape = {4}, .values = {5, -5, 5, -5}};
  integers.inputs[1] = {.dtype = DType::kI64, .shape = {4}, .values = {3, 3, -3, -3}};
  integers.expected = {2, -2, 2, -2};
  cases.push_back(integers);
  integers.name = "Mod has the divisor's sign";
  integers.attrs = {};
  integers.expected = {2, 1, -1, -2};
  cases.push_back(integers);
  cases.push_back(known("Mod by zero", "Mod", DType::kI64, {5, -5}, {0}, {0, 0}));

  cases.push_back(pair("Pow of positive bases", "Pow", {3, 5}, {5}, 0.3, 2.5));
  cases.push_back(pair("Pow with a broadcast base", "Pow", {1}, {3, 4}, 0.3, 2.5));
  for (double exponent : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5}) {
    OpCase c = pair("Pow with exponent " + std::to_string(exponent), "Pow", {7}, {}, 0.3, 2.5);
    c.inputs[1].values = {exponent};
    cases.push_back(c);
  }
  OpCase negative = pair("Pow of negative bases", "Pow", {7}, {}, -2, -0.3);
  negative.inputs[1] = {.shape = {}, .gradient = false, .values = {3}};
  cases.push_back(negative);
  OpCase at_zero = known("Pow at a base of zero", "Pow", DType::kF64, {0, 0.5}, {2}, {0, 0.25}, true);
  at_zero.inputs[1].gradient = false;
  cases.push_back(at_zero);
  OpCase mixed = pair("Pow with an integer exponent", "Pow", {5}, {5}, 0.3, 2.5);
  mixed.inputs[1] = {.dtype = DType::kI64, .shape = {5}, .values = {0, 1, 2, 3, -2}};
  cases.push_back(mixed);
  cases.push_back(known("Pow of integers", "Pow", DType::kI64, {2, 3, -2}, {10, 3, 3}, {1024, 27, -8}));
}

void add_comparisons(std::vector<OpCase>& cases) {
  struct Row {
    const char* op;
    Values expected;  // of 1, 2, 3 against 2
  };
  const Row kRows[] = {
      {"Equal", {0, 1, 0}},          {"Greater", {0, 0, 1}},     {"GreaterOrEqual", {0, 1, 1}},
      {"Less", {1, 0, 0}},           {"LessOrEqual", {1, 1, 0}},
  };
  for (const Row& row : kRows) {
    const std::string op = row.op;
    cases.push_back(known(op + " of floats", op, DType::kF64, {1, 2, 3}, {2}, row.expected));
    cases.push_back(known(op + " of i64", op, DType::kI64, {1, 2, 3}, {2}, row.expected));
    cases.push_back(known(op + " of i32", op, DType::kI32, {1, 2, 3}, {2}, row.expected));
    cases.push_back(pair(op + " of a broadcast", op, {3, 1, 4}, {5, 1}));
  }
  cases.push_back(known("Equal of bool", "Equal", DType::kBool, {0, 1, 1}, {0, 0, 1}, {1, 0, 1}));
  struct Logic {
    const char* op;
    Values expected;
  };
  for (const Logic& row : {Logic{"And", {0, 0, 0, 1}}, Logic{"Or", {0, 1, 1, 1}}}) {
    const std::string op = row.op;
    cases.push_back(known(op, op, DType::kBool, {0, 0, 1, 1}, {0, 1, 0, 1}, row.expected));
    cases.push_back(known(op + " of a scalar", op, DType::kBool, {0, 1}, {1},
                          op == "And" ? Values{0, 1} : Values{1, 1}));
    cases.push_back(known(op + " of false", op, DType::kBool, {0, 1}, {0}, op == "And" ? Values{0, 0} : Values{0, 1}));
    CaseInput a{.dtype = DType::kBool, .shape = {2, 1, 3}, .low = 0, .high = 2}, b = a;
    b.shape = {4, 1};
    cases.push_back({op + " of a broadcast", op, {}, {a, b}});
  }
}

}  // namespace

std::vector<OpCase> binary_cases() {
  std::vector<OpCase> cases;
  add_arithmetic(cases);
  add_mod_and_pow(cases);
  add_comparisons(cases);
  return cases;
}

}  // namespace piper::ops
