#include "ops/case.h"

namespace piper::ops {

std::vector<OpCase> dropout_cases() {
  auto dropped = [](std::string name, double ratio, int64_t outer, int64_t inner, std::vector<int64_t> shape) {
    return OpCase{std::move(name), "Dropout",
                  {{"ratio", ratio}, {"key", int64_t{7}}, {"outer", outer}, {"inner", inner}}, {{.shape = std::move(shape)}}};
  };
  OpCase known = dropped("no element", 0, 1, 3, {2, 3});
  known.inputs[0].values = known.expected = {1, 2, 3, 4, 5, 6};
  return {known, dropped("samples in front", 0.3, 1, 15, {4, 3, 5}), dropped("samples in the middle", 0.5, 3, 5, {3, 4, 5}),
          dropped("no samples", 0.1, 1, 0, {7, 3}), dropped("samples of one element", 0.5, 1, 1, {31})};
}

}  // namespace piper::ops
