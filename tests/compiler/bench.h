// A small model with its data in a folder of its own, and training runs on it.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "tests/frontend/onnx/graph_builder.h"
#include "tests/p1/run_cell.h"

namespace piper::testing {

using Values = std::vector<float>;

// Numbers in (-1, 1) that look random.
Values waves(size_t n, double phase);

struct DataTensor {
  std::string name;
  std::vector<int64_t> shape;
  Values values;
};

class Bench {
 public:
  Bench(const test::GraphBuilder& graph, const std::vector<DataTensor>& data);

  // A strategy with that text and a `train` of mean squared error of the first output against `t`.
  std::string strategy(const std::string& text, int batch, const std::string& more) const;
  p1::Result run(const std::string& text, int steps = 3, bool processes = false) const;
  plan::Plan compile(const std::string& text) const;
  // The messages of a compilation.
  std::string messages(const std::string& text) const;

 private:
  std::string stem(const std::string& text) const;

  test::TempFolder folder_;
  std::string model_, data_, output_;
  mutable int count_ = 0;
};

std::string data_parallel(int dp, int microbatches);

}  // namespace piper::testing
