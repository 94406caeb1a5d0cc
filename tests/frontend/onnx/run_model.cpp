#include "tests/frontend/onnx/run_model.h"

#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "frontend/onnx/initializer_reader.h"

namespace piper::test {

std::map<std::string, ops::Tensor> random_inputs(const ir::Model& model, int64_t batch,
                                                 int64_t limit) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int64_t> integer(0, limit - 1);
  std::map<std::string, ops::Tensor> inputs;
  for (ir::ValueId id : model.inputs) {
    const ir::Value& value = model.value(id);
    ops::Tensor tensor = ops::make_tensor(value.type.dtype, ir::at(value.type.shape, batch));
    for (int64_t i = 0; i < tensor.elements(); i++) {
      const bool is_bool = value.type.dtype == ir::DType::kBool;
      ops::set_number(tensor, i,
                      ir::is_float(value.type.dtype) ? normal(random)
                      : is_bool                      ? static_cast<double>(integer(random) % 2)
                                                     : static_cast<double>(integer(random)));
    }
    inputs[value.name] = std::move(tensor);
  }
  return inputs;
}

std::vector<ops::Tensor> run_model(const ir::Model& model, const std::string& file,
                                   const std::map<std::string, ops::Tensor>& inputs,
                                   int64_t batch) {
  std::map<ir::ValueId, ops::Tensor> given;
  for (ir::ValueId id : model.inputs) given[id] = inputs.at(model.value(id).name);
  auto reader = frontend::InitializerReader::open(file);
  if (!reader) throw std::runtime_error(reader.error().message);
  for (const ir::Parameter& param : model.params) {
    auto initial = reader->find(param.initializer);
    if (!initial) throw std::runtime_error(initial.error().message);
    ops::Tensor tensor = ops::make_tensor(initial->dtype, initial->dims);
    if (tensor.bytes.size() > 0) std::memcpy(tensor.bytes.data(), initial->data, initial->bytes);
    given[param.value] = std::move(tensor);
  }
  auto outputs = ops::evaluate(model, given, model.outputs, batch);
  if (!outputs) throw std::runtime_error(outputs.error().message);
  return *outputs;
}

double largest_difference(const std::vector<ops::Tensor>& a, const std::vector<ops::Tensor>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t k = 0; k < a.size(); k++) {
    if (a[k].shape != b[k].shape || a[k].dtype != b[k].dtype) return INFINITY;
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < a[k].elements(); i++) {
      const double x = ops::get_number(a[k], i), y = ops::get_number(b[k], i);
      if (std::isnan(x) && std::isnan(y)) continue;
      if (std::isnan(x) != std::isnan(y)) return INFINITY;
      if (x == y) continue;  // also infinities
      largest = std::max({largest, std::abs(x), std::abs(y)});
      difference = std::max(difference, std::abs(x - y));
    }
    if (difference > 0) worst = std::max(worst, difference / std::max(largest, 1e-30));
  }
  return worst;
}

Compared compare_canonical(const GraphBuilder& graph, int64_t batch,
                           const frontend::ImportOptions& options) {
  TempFolder folder;
  const std::string file = folder.write("model.onnx", graph.bytes());
  frontend::ImportOptions plain_options = options;
  plain_options.canonicalise = false;
  Imported plain = import_file(file, plain_options);
  Imported canonical = import_file(file, options);
  if (!plain.model || !canonical.model)
    throw std::runtime_error(plain.messages + canonical.messages);
  const auto inputs = random_inputs(*plain.model, batch);
  const double difference = largest_difference(run_model(*plain.model, file, inputs, batch),
                                               run_model(*canonical.model, file, inputs, batch));
  return {std::move(*plain.model), std::move(*canonical.model), difference};
}

}  // namespace piper::test
