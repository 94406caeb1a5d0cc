#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> trilu_cases() {
  auto triangle = [](std::string name, int64_t upper, int64_t k, std::vector<double> expected) {
    return OpCase{std::move(name), "Trilu", {{"upper", upper}, {"k", k}},
                  {{.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}}}, std::move(expected)};
  };
  OpCase batch{"of several matrices", "Trilu", {{"upper", int64_t{0}}, {"k", int64_t{0}}}, {{.shape = {2, 3, 4, 4}}}};
  OpCase booleans = triangle("of bool", 0, 0, {1, 0, 0, 1, 1, 0});
  booleans.inputs[0] = {.dtype = ir::DType::kBool, .shape = {2, 3}, .values = {1, 1, 1, 1, 1, 1}};
  return {triangle("upper", 1, 0, {1, 2, 3, 0, 5, 6}),       triangle("strictly upper", 1, 1, {0, 2, 3, 0, 0, 6}),
          triangle("lower", 0, 0, {1, 0, 0, 4, 5, 0}),       triangle("strictly lower", 0, -1, {0, 0, 0, 4, 0, 0}),
          triangle("everything", 1, -9, {1, 2, 3, 4, 5, 6}), triangle("nothing", 0, -9, {0, 0, 0, 0, 0, 0}),
          batch, booleans};
}

}  // namespace piper::ops
