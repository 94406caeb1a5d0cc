#include "ops/case.h"

namespace piper::ops {

namespace {

using ir::DType;
using Shape = std::vector<int64_t>;

CaseInput indices(Shape shape, double low, double high, std::vector<double> values = {}, DType dtype = DType::kI64) {
  return {.dtype = dtype, .shape = std::move(shape), .low = low, .high = high, .values = std::move(values)};
}

OpCase pick(std::string name, std::string op, int64_t axis, Shape data, CaseInput index) {
  return {std::move(name), std::move(op), {{"axis", axis}}, {{.shape = std::move(data)}, std::move(index)}};
}

OpCase back(std::string name, std::string op, int64_t axis, ir::Shape data, CaseInput dy, CaseInput index,
            std::vector<double> expected) {
  return {std::move(name), std::move(op), {{"axis", axis}, {"shape", std::move(data)}}, {std::move(dy), std::move(index)},
          std::move(expected)};
}

}  // namespace

std::vector<OpCase> gather_cases() {
  OpCase known = pick("rows", "Gather", 0, {3, 2}, indices({2}, 0, 0, {2, 0}));
  known.inputs[0].values = {1, 2, 3, 4, 5, 6};
  known.expected = {5, 6, 1, 2};
  OpCase negative = known;
  negative.name = "from the end";
  negative.inputs[1] = indices({2}, 0, 0, {-1, -3}, DType::kI32);
  OpCase integers = known;
  integers.name = "of i64";
  integers.inputs[0].dtype = DType::kI64;
  OpCase outside = integers;
  outside.name = "an integer out of range is 0";
  outside.inputs[1] = indices({2}, 0, 0, {3, -4});
  outside.expected = {0, 0, 0, 0};
  OpCase elements = pick("elements", "GatherElements", 1, {2, 2}, indices({2, 2}, 0, 0, {0, 0, 1, 0}));
  elements.inputs[0].values = {1, 2, 3, 4};
  elements.expected = {1, 1, 4, 3};
  OpCase elements_end = elements;
  elements_end.name = "elements from the end";
  elements_end.inputs[1] = indices({2, 2}, 0, 0, {-2, -2, -1, -2}, DType::kI32);
  OpCase scatter{"scattered elements", "ScatterElements", {{"axis", int64_t{1}}, {"add", int64_t{0}}},
                 {{.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}}, indices({2, 2}, 0, 0, {2, 0, -2, 2}), {.shape = {2, 2}, .values = {7, 8, 9, 10}}},
                 {8, 2, 7, 4, 9, 10}};
  OpCase scatter_add = scatter;
  scatter_add.name = "equal places add up";
  scatter_add.attrs.set("add", int64_t{1});
  scatter_add.inputs[1] = indices({2, 2}, 0, 0, {1, 1, 0, -3}, DType::kI32);
  scatter_add.expected = {1, 17, 3, 23, 5, 6};
  OpCase scatter_outside = scatter;
  scatter_outside.name = "nothing is put out of range";
  scatter_outside.inputs[1] = indices({2, 2}, 0, 0, {3, 0, -4, 2});
  scatter_outside.expected = {8, 2, 3, 4, 5, 10};
  OpCase scatter_integers = scatter;
  scatter_integers.name = "scattered integers";
  for (size_t i : {0, 2}) scatter_integers.inputs[i].dtype = scatter_outside.inputs[i].dtype = DType::kI64;
  const auto put = [](std::string name, int64_t axis, int64_t add, Shape data, CaseInput index) {
    const CaseInput updates{.shape = index.shape};
    return OpCase{std::move(name), "ScatterElements", {{"axis", axis}, {"add", add}}, {{.shape = std::move(data)}, std::move(index), updates}};
  };
  const CaseInput dy2{.shape = {2, 2}, .values = {1, 2, 3, 4}};
  return {
      known, negative, integers, outside,
      pick("an embedding", "Gather", 0, {7, 5}, indices({2, 3}, 0, 7)),
      pick("one row", "Gather", 0, {4, 3}, indices({}, 0, 4)),
      pick("along a middle dim", "Gather", 1, {2, 5, 3}, indices({4}, -5, 5)),
      pick("along the last dim", "Gather", 2, {2, 3, 4}, indices({2, 2}, 0, 4)),
      pick("many columns", "Gather", 0, {3, 300}, indices({5}, 0, 3)),
      elements, elements_end,
      pick("elements along the first dim", "GatherElements", 0, {4, 3}, indices({2, 3}, -4, 4)),
      pick("elements of a smaller index", "GatherElements", 1, {3, 5, 4}, indices({2, 7, 3}, 0, 5)),
      pick("elements of a row", "GatherElements", 0, {6}, indices({9}, 0, 6)),
      scatter, scatter_add, scatter_outside, scatter_integers,
      put("scattered along the first dim", 0, 0, {5, 3}, indices({2, 3}, 0, 0, {4, 1, 0, 2, 3, 2})),
      put("added along the first dim", 0, 1, {4, 3}, indices({7, 3}, -4, 4)),
      put("added along a middle dim, to fewer rows", 1, 1, {3, 4, 5}, indices({2, 6, 4}, 0, 4)),
      put("put into a row", 0, 0, {6}, indices({3}, 0, 0, {5, 0, 2})),
      back("equal indices add up", "GatherGrad", 0, {3, 2}, dy2, indices({2}, 0, 0, {1, 1}), {0, 0, 4, 6, 0, 0}),
      back("a gradient from the end", "GatherGrad", 0, {3, 2}, dy2, indices({2}, 0, 0, {-1, 0}), {3, 4, 0, 0, 1, 2}),
      back("a gradient out of range is dropped", "GatherGrad", 0, {2, 2}, dy2, indices({2}, 0, 0, {5, 0}), {3, 4, 0, 0}),
      back("a gradient along the last dim", "GatherGrad", 1, {2, 3}, dy2, indices({2}, 0, 0, {2, 2}), {0, 0, 3, 0, 0, 7}),
      back("equal elements add up", "GatherElementsGrad", 1, {2, 2}, dy2, indices({2, 2}, 0, 0, {0, 0, 1, 0}), {3, 0, 4, 3}),
      back("elements along the first dim back", "GatherElementsGrad", 0, {2, 2}, dy2, indices({2, 2}, 0, 0, {0, 1, 0, 1}), {4, 0, 0, 6}),
      back("elements from the end back", "GatherElementsGrad", 1, {2, 2}, dy2, indices({2, 2}, 0, 0, {-1, -2, 0, 0}), {2, 1, 7, 0}),
      back("elements out of range are dropped", "GatherElementsGrad", 0, {3}, {.shape = {2}, .values = {1, 2}}, indices({2}, 0, 0, {7, 1}), {0, 2, 0}),
  };
}

}  // namespace piper::ops
