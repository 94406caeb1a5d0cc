// Runs imported models on the CPU kernels, so that rewrites can be compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/model.h"
#include "ops/evaluate.h"
#include "tests/frontend/onnx/graph_builder.h"

namespace piper::test {

// Values of all inputs of a model for `batch` samples: floats normal, integers in [0, limit), from
// a fixed seed.
std::map<std::string, ops::Tensor> random_inputs(const ir::Model& model, int64_t batch,
                                                 int64_t limit = 4);

// The outputs for the given inputs; parameters come from the model's file.
std::vector<ops::Tensor> run_model(const ir::Model& model, const std::string& file,
                                   const std::map<std::string, ops::Tensor>& inputs, int64_t batch);

// The largest difference of two outputs relative to the largest value.
double largest_difference(const std::vector<ops::Tensor>& a, const std::vector<ops::Tensor>& b);

// Imports a graph as it is and canonicalised, runs both on the same data, and returns the largest
// difference and the canonical model. Fails the test when the import does.
struct Compared {
  ir::Model plain;
  ir::Model canonical;
  double difference = 0;
};
Compared compare_canonical(const GraphBuilder& graph, int64_t batch = 3,
                           const frontend::ImportOptions& options = {});

}  // namespace piper::test
