#include "ops/case.h"

namespace piper::ops {

namespace {

using Sizes = std::vector<int64_t>;

CaseInput integers(Sizes shape, std::vector<double> values, ir::DType dtype = ir::DType::kI64) {
  return {.dtype = dtype, .shape = std::move(shape), .values = std::move(values)};
}
CaseInput tensor(Sizes shape, std::vector<double> values = {}) {
  return {.shape = std::move(shape), .values = std::move(values)};
}

OpCase route(std::string name, ir::Attrs attrs, Sizes shape, std::vector<double> expert, std::vector<double> slot) {
  return {
      std::move(name), "MoERoute", std::move(attrs), {integers(std::move(shape), std::move(expert))}, std::move(slot)};
}
ir::Attrs attrs(int64_t experts, int64_t capacity = 0, int64_t choices_first = 0, int64_t padded = 0) {
  return {{"experts", experts}, {"capacity", capacity}, {"choices_first", choices_first}, {"padded", padded}};
}

// 4 tokens of two choices each; the last pair was dropped. Wide ones have more than one block of a kernel.
const std::vector<double> kSlots = {3, 0, 1, 6, 4, 2, 5, -1};
const CaseInput kGates = tensor({4, 2}, {0.25, 0.75, 0.5, 0.5, 2, -1, 0.125, 3});

OpCase move(std::string name, std::string op, CaseInput first, CaseInput slot, std::vector<CaseInput> more,
            ir::Shape rows, std::vector<double> expected = {}) {
  OpCase c{std::move(name), std::move(op), {}, {std::move(first), std::move(slot)}, std::move(expected)};
  for (CaseInput& input : more) c.inputs.push_back(std::move(input));
  if (c.op == "MoEDispatch") c.attrs.set("shape", std::move(rows));
  return c;
}

std::vector<OpCase> route_cases() {
  return {
      route("two choices of four experts, one of them without tokens", attrs(4), {4, 2}, {3, 0, 0, 1, 3, 1, 1, 0},
            {6, 0, 1, 3, 7, 4, 5, 2}),
      route("one choice", attrs(3), {5, 1}, {2, 0, 2, 1, 0}, {3, 0, 4, 2, 1}),
      route("one expert has all tokens", attrs(3), {4, 1}, {1, 1, 1, 1}, {0, 1, 2, 3}),
      route("experts that do not exist", attrs(2), {4, 1}, {2, 1, -1, 0}, {-1, 1, -1, 0}),
      route("groups are one list without a capacity", attrs(2), {2, 2, 1}, {1, 0, 0, 1}, {2, 0, 1, 3}),
      route("a capacity of 1, by tokens", attrs(2, 1), {3, 2}, {0, 1, 1, 0, 0, 1}, {0, 1, -1, -1, -1, -1}),
      route("a capacity of 2, by choices", attrs(2, 2, 1), {3, 2}, {1, 0, 1, 0, 0, 1}, {2, 0, 3, -1, 1, -1}),
      route("a capacity of 2, by tokens", attrs(2, 2), {3, 2}, {1, 0, 1, 0, 0, 1}, {2, 0, 3, 1, -1, -1}),
      route("a capacity for each group", attrs(2, 1), {2, 2, 1}, {1, 1, 0, 1}, {1, -1, 0, 2}),
      route("padded", attrs(2, 2, 0, 1), {3, 1}, {1, 0, 1}, {2, 0, 3}),
      route("padded, for each group", attrs(2, 2, 0, 1), {2, 2, 1}, {1, 1, 0, 1}, {4, 5, 2, 6}),
      route("padded, group by group", attrs(2, 2, 0, 2), {2, 2, 1}, {1, 1, 0, 1}, {2, 3, 4, 6}),
      route("padded, without a capacity", attrs(2, 0, 0, 1), {3, 1}, {1, 1, 1}, {3, 4, 5}),
      {"of i32", "MoERoute", attrs(2), {integers({3, 1}, {1, 0, 1}, ir::DType::kI32)}, {1, 0, 2}},
      route("no tokens", attrs(2), {0, 2}, {}, {}),
      route("three experts of two owners", {{"experts", int64_t{3}}, {"owners", int64_t{2}}}, {4, 1}, {2, 0, 2, 1},
            {2, 0, 3, 1}),
  };
}

}  // namespace

std::vector<OpCase> moe_cases() {
  const CaseInput slots = integers({4, 2}, kSlots);
  const CaseInput swapped = integers({3, 1}, {2, -1, 0});
  const CaseInput two = tensor({3, 2}, {1, 2, 3, 4, 5, 6});
  std::vector<OpCase> cases = route_cases();
  const std::vector<OpCase> moves = {
      move("tokens to rows", "MoEDispatch", two, swapped, {}, {4, 2}, {5, 6, 0, 0, 1, 2, 0, 0}),
      move("gated tokens to rows", "MoEDispatch", two, swapped, {tensor({3, 1}, {10, 7, 2})}, {3, 2},
           {10, 12, 0, 0, 10, 20}),
      move("two choices", "MoEDispatch", tensor({4, 5}), slots, {}, {8, 5}),
      move("two choices, gated", "MoEDispatch", tensor({4, 5}), slots, {kGates}, {8, 5}),
      move("tokens of samples", "MoEDispatch", tensor({2, 2, 3}), integers({2, 2, 2}, kSlots), {}, {8, 3}),
      move("wide tokens", "MoEDispatch", tensor({4, 4099}), slots, {kGates}, {8, 4099}),
      move("rows to tokens", "MoECombine", two, swapped, {}, {}, {5, 6, 0, 0, 1, 2}),
      move("gated rows to tokens", "MoECombine", two, swapped, {tensor({3, 1}, {10, 7, 2})}, {}, {50, 60, 0, 0, 2, 4}),
      move("sum of two choices", "MoECombine", tensor({8, 5}), slots, {kGates}, {}),
      move("ungated sum of two choices", "MoECombine", tensor({8, 5}), slots, {}, {}),
      move("rows to tokens of samples", "MoECombine", tensor({8, 3}), integers({2, 2, 2}, kSlots), {tensor({2, 2, 2})},
           {}),
      move("wide rows", "MoECombine", tensor({8, 4099}), slots, {kGates}, {}),
      move("gate gradients", "MoEGateGrad", two, swapped, {tensor({3, 2}, {1, 1, 2, 2, 10, 0})}, {}, {11, 0, 10}),
      move("gate gradients of two choices", "MoEGateGrad", tensor({8, 37}), slots, {tensor({4, 37})}, {}),
      move("gate gradients of samples", "MoEGateGrad", tensor({8, 3}), integers({2, 2, 2}, kSlots), {tensor({2, 2, 3})},
           {}),
      move("gate gradients of wide rows", "MoEGateGrad", tensor({8, 4099}), slots, {tensor({4, 4099})}, {}),
      move("no tokens", "MoECombine", tensor({0, 3}), integers({0, 2}, {}), {tensor({0, 2})}, {}),
  };
  cases.insert(cases.end(), moves.begin(), moves.end());
  return cases;
}

}  // namespace piper::ops
