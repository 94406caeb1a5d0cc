#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> accumulate_cases() {
  std::vector<OpCase> cases;
  for (const char* name : {"Accumulate", "Identity"}) {
    const std::string op = name;
    ir::Attrs attrs;
    if (op == "Accumulate") attrs.set("accumulate", int64_t{1});
    cases.push_back({op + " of a scalar", op, attrs, {{.shape = {}}}});
    cases.push_back({op + " of an odd shape", op, attrs, {{.shape = {3, 7}}}});
    cases.push_back({op + " of several pieces", op, attrs, {{.shape = {20000}, .gradient = false}}});
    // The test's buffers start as zeros.
    cases.push_back({op + " with known values", op, attrs, {{.shape = {2}, .values = {1, -2}}}, {1, -2}});
  }
  cases.push_back({"Identity of i64", "Identity", {}, {{.dtype = ir::DType::kI64, .shape = {2}, .values = {5, 6}}}, {5, 6}});
  return cases;
}

}  // namespace piper::ops
