// Running a cell of the matrix, and comparing two runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/p1/matrix.h"

namespace piper::p1 {

using Tensors = std::map<std::string, std::vector<double>>;

struct Result {
  std::string error;  // empty: it ran
  std::vector<double> losses, grad_norms;
  Tensors gradients;  // of the first step, before clipping
  Tensors weights;    // after the last step
};

// Compiles and runs `steps` steps, samples in the order of the data file.
Result run(const Cell& cell, int steps);

// Tensors of a safetensors file as f64.
Tensors read_tensors(const std::string& path);

// A gradient that is zero in theory (a key bias's: softmax does not see a shift of all scores) is rounding noise in every
// run: below this it is not compared by itself.
double noise_floor(const Tensors& gradients);

// max|a - b| / max|b|
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);

struct Difference {
  double loss = 0, norm = 0, gradients = 0, weights = 0;
  std::string worst;  // tensor with the largest difference
};
Difference compare(const Result& a, const Result& b);

}  // namespace piper::p1
