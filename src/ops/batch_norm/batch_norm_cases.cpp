#include "ops/case.h"

namespace piper::ops {

namespace {

using Ints = std::vector<int64_t>;

CaseInput tensor(Ints shape) { return {.shape = std::move(shape)}; }
CaseInput values(Ints shape, std::vector<double> v) { return {.shape = std::move(shape), .values = std::move(v)}; }
CaseInput fixed(int64_t channels, double low, double high) {
  return {.shape = {channels}, .gradient = false, .low = low, .high = high};
}
CaseInput known(double value) { return {.shape = {1}, .gradient = false, .values = {value}}; }
CaseInput positive(Ints shape) { return {.shape = std::move(shape), .gradient = false, .low = 0.5, .high = 2}; }

ir::Attrs attrs(int64_t rows = 0, double eps = 1e-3) { return {{"eps", eps}, {"momentum", 0.9}, {"rows", rows}}; }

std::vector<CaseInput> operands(Ints shape) {
  const int64_t c = shape[1];
  return {tensor(shape), tensor({c}), tensor({c}), fixed(c, -1, 1), fixed(c, 0.5, 2)};
}
std::vector<CaseInput> backward(Ints shape, bool given) {
  const Ints statistics = given ? Ints{shape[1]} : Ints{shape[0], shape[1]};
  return {tensor(shape), tensor({shape[1]}), tensor(statistics), positive(statistics), tensor(shape)};
}

}  // namespace

std::vector<OpCase> batch_norm_cases() {
  const CaseInput zero = values({1}, {0}), one = values({1}, {1}), mean = known(0), variance = known(1);
  return {
      {"by hand",
       "BatchNorm",
       attrs(0, 0.0),
       {values({2, 1}, {1, 5}), values({1}, {3}), values({1}, {10}), mean, variance},
       {7, 13}},
      {"by hand, groups",
       "BatchNorm",
       attrs(2, 0.0),
       {values({4, 1}, {1, 5, 30, 10}), one, zero, mean, variance},
       {-1, 1, 1, -1}},
      {"images", "BatchNorm", attrs(), operands({4, 3, 5, 3})},
      {"images in groups", "BatchNorm", attrs(2), operands({6, 2, 3, 7})},
      {"vectors", "BatchNorm", attrs(), operands({7, 5})},
      {"vectors in groups", "BatchNorm", attrs(4), operands({8, 5})},
      {"many channels", "BatchNorm", attrs(3), operands({3, 70, 33, 17})},
      {"gradient", "BatchNormGrad", attrs(), backward({4, 3, 5, 3}, false)},
      {"gradient in groups", "BatchNormGrad", attrs(2), backward({6, 2, 3, 7}, false)},
      {"gradient of vectors", "BatchNormGrad", attrs(4), backward({8, 5}, false)},
      {"gradient of many channels", "BatchNormGrad", attrs(3), backward({3, 70, 33, 17}, false)},
      {"given by hand",
       "BatchNormInference",
       attrs(0, 0.0),
       {values({1, 1, 2}, {1, 5}), values({1}, {2}), values({1}, {10}), known(1), known(4)},
       {10, 14}},
      {"given, images", "BatchNormInference", attrs(), operands({4, 3, 5, 3})},
      {"given, vectors", "BatchNormInference", attrs(), operands({7, 5})},
      {"given, no samples", "BatchNormInference", attrs(), operands({0, 5, 2})},
      {"given, gradient", "BatchNormInferenceGrad", attrs(), backward({4, 3, 5, 3}, true)},
      {"given, gradient of vectors", "BatchNormInferenceGrad", attrs(), backward({7, 5}, true)},
      {"given, gradient of many channels", "BatchNormInferenceGrad", attrs(), backward({3, 70, 33, 17}, true)},
      {"given, gradient of no samples", "BatchNormInferenceGrad", attrs(), backward({0, 5}, true)},
      {"statistics of the batch",
       "BatchStatistics",
       {{"momentum", 0.75}, {"groups", int64_t{1}}},
       {values({2, 2}, {4, 8, 4, 8})},
       {1, 2}},
      {"statistics of groups",
       "BatchStatistics",
       {{"momentum", 0.5}, {"groups", int64_t{2}}, {"rows", int64_t{2}}, {"rows_per_sample", int64_t{1}}},
       {values({4, 1}, {4, 4, 8, 8})},
       {5}},
      {"statistics of some of the groups",
       "BatchStatistics",
       {{"momentum", 0.5}, {"groups", int64_t{3}}, {"rows", int64_t{1}}, {"rows_per_sample", int64_t{1}}},
       {values({2, 1}, {8, 4})},
       {2}},
      {"statistics of many channels",
       "BatchStatistics",
       {{"momentum", 0.9}, {"groups", int64_t{3}}, {"rows", int64_t{2}}, {"rows_per_sample", int64_t{2}}},
       {tensor({6, 33})}},
  };
}

}  // namespace piper::ops
