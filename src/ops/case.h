// Test cases of an op as data, in src/ops/<folder>/<folder>_cases.cpp. The same cases run as comparison with a naive
// reference where there is one, gradients against central differences in f64, f32 against f64, and timing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/attributes.h"
#include "ir/types.h"

namespace piper::ops {

struct CaseInput {
  ir::DType dtype = ir::DType::kF64;
  std::vector<int64_t> shape;
  bool present = true;
  bool gradient = true;        // check the gradient of this input (float inputs)
  double low = -1, high = 1;   // uniform values; integers are drawn from [low, high)
  std::vector<double> values;  // explicit values instead
  bool keep_f64 = false;       // f64 also where the case runs in f32 (counts)
};

struct OpCase {
  std::string name;
  std::string op;
  ir::Attrs attrs;
  std::vector<CaseInput> inputs;
  std::vector<double> expected = {};   // of output 0, when the case has a known answer
  double gradient_tolerance = 1e-6;    // relative, against central differences in f64
  double f32_tolerance = 2e-5;         // f32 kernel against f64 kernel, relative to the largest value
};

// The cases of each folder of the table (a folder with several ops is declared as often).
#define PIPER_OP(name, folder) std::vector<OpCase> folder##_cases();
#include "ops/ops.def"
#undef PIPER_OP

// All cases of all folders.
std::vector<OpCase> all_cases();

}  // namespace piper::ops
