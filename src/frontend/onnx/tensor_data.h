// TensorProto to plain bytes: every form a tensor can be stored in. External data is looked for
// below the model's folder only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/onnx/initializer_reader.h"
#include "frontend/onnx/mapped_file.h"
#include "frontend/onnx/proto.h"

namespace piper::frontend {

// The element type of ONNX's number; nothing when Piper has no such type.
bool dtype_from_onnx(int onnx_type, ir::DType* out);
// "float16", "int8", ... for messages.
std::string onnx_type_name(int onnx_type);

// Decodes tensors of one model file and owns what it had to convert or map.
class TensorDecoder {
 public:
  explicit TensorDecoder(std::string model_path) : model_path_(std::move(model_path)) {}
  // `what` names the tensor in messages. The bytes live as long as the decoder and the proto.
  support::Expected<Initializer> decode(const ::onnx::TensorProto& tensor);

 private:
  support::Expected<Initializer> external(const ::onnx::TensorProto& tensor, Initializer result,
                                          size_t bytes);
  std::string model_path_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> converted_;
};

// Parses a whole model file (`size` bytes). An error says what the file seems to be instead.
support::Expected<std::unique_ptr<::onnx::ModelProto>> parse_model(const std::string& path,
                                                                   const std::byte* data,
                                                                   size_t size);

}  // namespace piper::frontend
