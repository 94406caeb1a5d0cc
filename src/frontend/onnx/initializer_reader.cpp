#include "frontend/onnx/initializer_reader.h"

#include <unordered_map>

#include "frontend/onnx/tensor_data.h"

namespace piper::frontend {

struct InitializerReader::State {
  explicit State(const std::string& path) : decoder(path) {}
  std::unique_ptr<::onnx::ModelProto> model;
  TensorDecoder decoder;
  std::unordered_map<std::string, const ::onnx::TensorProto*> tensors;
  std::unordered_map<std::string, Initializer> decoded;
};

InitializerReader::InitializerReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
InitializerReader::InitializerReader(InitializerReader&&) noexcept = default;
InitializerReader& InitializerReader::operator=(InitializerReader&&) noexcept = default;
InitializerReader::~InitializerReader() = default;

support::Expected<InitializerReader> InitializerReader::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return tl::make_unexpected(file.error());
  auto model = parse_model(path, (*file)->data(), (*file)->size());
  if (!model) return tl::make_unexpected(model.error());
  auto state = std::make_unique<State>(path);
  state->model = std::move(*model);
  for (const auto& tensor : state->model->graph().initializer())
    state->tensors[tensor.name()] = &tensor;
  // A weight may also be the value of a Constant node.
  for (const auto& node : state->model->graph().node()) {
    if (node.op_type() != "Constant" || node.output_size() != 1) continue;
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == "value" && attribute.has_t())
        state->tensors.emplace(node.output(0), &attribute.t());
    }
  }
  return InitializerReader(std::move(state));
}

std::vector<std::string> InitializerReader::names() const {
  std::vector<std::string> names;
  for (const auto& tensor : state_->model->graph().initializer()) names.push_back(tensor.name());
  return names;
}

support::Expected<Initializer> InitializerReader::find(std::string_view name) const {
  const std::string key(name);
  if (auto known = state_->decoded.find(key); known != state_->decoded.end()) return known->second;
  auto it = state_->tensors.find(key);
  if (it == state_->tensors.end())
    return support::user_error("the model file has no initializer `" + key + "`");
  auto decoded = state_->decoder.decode(*it->second);
  if (decoded) state_->decoded[key] = *decoded;
  return decoded;
}

}  // namespace piper::frontend
