#include "ops/case.h"

namespace piper::ops {

namespace {

using ir::DType;

OpCase over(std::string name, std::string op, std::vector<int64_t> shape, std::vector<int64_t> axes, int64_t keepdims) {
  return {op + " " + name, op, {{"axes", std::move(axes)}, {"keepdims", keepdims}}, {{.shape = std::move(shape)}}};
}

}  // namespace

std::vector<OpCase> reduce_cases() {
  std::vector<OpCase> cases;
  for (const char* name : {"ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"}) {
    const std::string op = name;
    cases.push_back(over("over the last dim", op, {3, 4, 7}, {2}, 1));
    cases.push_back(over("over the first dim", op, {3, 4, 7}, {0}, 0));
    cases.push_back(over("over a middle dim", op, {3, 4, 7}, {1}, 0));
    cases.push_back(over("over outer dims", op, {2, 3, 5, 3}, {0, 2}, 1));
    cases.push_back(over("over both ends", op, {2, 3, 5, 3}, {0, 1, 3}, 0));
    cases.push_back(over("over all dims", op, {3, 5}, {0, 1}, 0));
    cases.push_back(over("over a dim of 1", op, {3, 1, 5}, {1}, 0));
    cases.push_back(over("of one element", op, {1, 1}, {0, 1}, 0));
    cases.push_back(over("over many rows", op, {150, 300}, {0}, 0));
    cases.push_back(over("over a long row", op, {2, 9001}, {1}, 0));
    cases.push_back(over("over many blocks", op, {130, 3, 40}, {0, 2}, 0));
    for (size_t i = cases.size() - 3; i < cases.size(); i++) cases[i].inputs[0].gradient = false;
    OpCase known = over("with known values", op, {2, 3}, {1}, 0);
    known.inputs[0].values = {1, 2, 6, -4, 0, 1};
    const std::vector<std::vector<double>> answers = {{6, 1}, {3, -1}, {1, -4}, {9, -3}};
    known.expected = op == "ReduceMax" ? answers[0] : op == "ReduceMean" ? answers[1] : op == "ReduceMin" ? answers[2] : answers[3];
    cases.push_back(known);
    OpCase integers = known;
    integers.name = op + " of i64";
    integers.inputs[0].dtype = DType::kI64;
    cases.push_back(integers);
  }
  // Ties cannot be checked by differences; of the parts of a gradient they are covered by tests/ops.
  return cases;
}

}  // namespace piper::ops
