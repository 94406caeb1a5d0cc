#include "frontend/onnx/tensor_data.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

namespace piper::frontend {

using ::onnx::TensorProto;
using support::Expected;
using support::user_error;

bool dtype_from_onnx(int onnx_type, ir::DType* out) {
  switch (onnx_type) {
    case TensorProto::FLOAT:
      *out = ir::DType::kF32;
      return true;
    case TensorProto::DOUBLE:
      *out = ir::DType::kF64;
      return true;
    case TensorProto::BFLOAT16:
      *out = ir::DType::kBF16;
      return true;
    case TensorProto::INT64:
      *out = ir::DType::kI64;
      return true;
    case TensorProto::INT32:
      *out = ir::DType::kI32;
      return true;
    case TensorProto::BOOL:
      *out = ir::DType::kBool;
      return true;
    case TensorProto::UINT8:
      *out = ir::DType::kU8;
      return true;
    default:
      return false;
  }
}

std::string onnx_type_name(int onnx_type) {
  static constexpr const char* kNames[] = {"undefined",  "float",   "uint8",  "int8",   "uint16",
                                           "int16",      "int32",   "int64",  "string", "bool",
                                           "float16",    "double",  "uint32", "uint64", "complex64",
                                           "complex128", "bfloat16"};
  if (onnx_type >= 0 && onnx_type < static_cast<int>(std::size(kNames))) return kNames[onnx_type];
  return "type " + std::to_string(onnx_type);
}

namespace {

template <class To, class Field>
void convert(const Field& field, std::vector<std::byte>* out) {
  out->resize(static_cast<size_t>(field.size()) * sizeof(To));
  for (int i = 0; i < field.size(); i++) {
    const To value = static_cast<To>(field.Get(i));
    std::memcpy(out->data() + static_cast<size_t>(i) * sizeof(To), &value, sizeof(To));
  }
}

// Values that are not in raw_data are in the field of their type; small types travel as int32.
void convert_typed(const TensorProto& tensor, ir::DType dtype, std::vector<std::byte>* out) {
  switch (dtype) {
    case ir::DType::kF32:
      convert<float>(tensor.float_data(), out);
      break;
    case ir::DType::kF64:
      convert<double>(tensor.double_data(), out);
      break;
    case ir::DType::kI64:
      convert<int64_t>(tensor.int64_data(), out);
      break;
    case ir::DType::kI32:
      convert<int32_t>(tensor.int32_data(), out);
      break;
    case ir::DType::kBF16:
      convert<uint16_t>(tensor.int32_data(), out);
      break;
    case ir::DType::kBool:
    case ir::DType::kU8:
      convert<uint8_t>(tensor.int32_data(), out);
      break;
  }
}

// Number of bytes of a dense tensor; nothing on a negative dim or overflow.
std::optional<size_t> dense_bytes(const std::vector<int64_t>& dims, ir::DType dtype) {
  int64_t count = ir::dtype_size(dtype);
  for (int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return static_cast<size_t>(count);
}

bool parse_number(const std::string& text, size_t* out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

// What another format's first bytes say, "" when nothing is recognised.
std::string other_format(const std::byte* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), std::min<size_t>(size, 512));
  if (text.starts_with("PK\x03\x04"))
    return "a zip archive (a PyTorch checkpoint or a NumPy .npz?)";
  if (text.starts_with("\x80\x02") || text.starts_with("\x80\x04")) return "a Python pickle";
  if (text.starts_with("\x89HDF")) return "an HDF5 file";
  if (text.starts_with("GGUF")) return "a GGUF file";
  if (text.starts_with("\x1f\x8b")) return "a gzip archive";
  if (text.size() > 9 && text[8] == '{') return "a safetensors file";
  if (text.size() > 8 && text.substr(4, 4) == "TFL3") return "a TensorFlow Lite model";
  if (text.starts_with("version https://git-lfs"))
    return "a Git LFS pointer; fetch the file with `git lfs pull`";
  if (text.starts_with("{") || text.starts_with("<")) return "a text file";
  return {};
}

}  // namespace

Expected<Initializer> TensorDecoder::decode(const TensorProto& tensor) {
  Initializer result;
  result.name = tensor.name();
  const std::string what = "tensor `" + tensor.name() + "`";
  if (!dtype_from_onnx(tensor.data_type(), &result.dtype)) {
    return user_error(what + " has element type " + onnx_type_name(tensor.data_type()) +
                      ", which is not supported");
  }
  result.dims.assign(tensor.dims().begin(), tensor.dims().end());
  const std::optional<size_t> bytes = dense_bytes(result.dims, result.dtype);
  if (!bytes) return user_error(what + " has impossible dims");
  result.bytes = *bytes;
  if (tensor.data_location() == TensorProto::EXTERNAL)
    return external(tensor, std::move(result), *bytes);
  size_t found = 0;
  if (tensor.has_raw_data()) {
    result.data = reinterpret_cast<const std::byte*>(tensor.raw_data().data());
    found = tensor.raw_data().size();
  } else {
    auto buffer = std::make_unique<std::vector<std::byte>>();
    convert_typed(tensor, result.dtype, buffer.get());
    result.data = buffer->data();
    found = buffer->size();
    converted_.push_back(std::move(buffer));
  }
  if (found != *bytes) {
    return user_error(what + " holds " + std::to_string(found) +
                      " bytes, but its type and dims need " + std::to_string(*bytes));
  }
  return result;
}

Expected<Initializer> TensorDecoder::external(const TensorProto& tensor, Initializer result,
                                              size_t bytes) {
  std::string location, offset_text = "0", length_text;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset_text = entry.value();
    if (entry.key() == "length") length_text = entry.value();
  }
  const std::string what = "external data of tensor `" + tensor.name() + "`";
  namespace fs = std::filesystem;
  const fs::path relative(location);
  bool escapes =
      location.empty() || relative.is_absolute() || location.find('\\') != std::string::npos;
  for (const fs::path& part : relative) escapes = escapes || part == "..";
  if (escapes)
    return user_error(what + " is at `" + location + "`, which is not below the model's folder");
  const fs::path folder = fs::absolute(fs::path(model_path_)).parent_path();
  // A link inside the folder may still lead out of it.
  std::error_code error;
  const fs::path real = fs::canonical(folder / relative, error);
  if (error) return user_error(what + " is missing: `" + location + "`");
  const fs::path inside = real.lexically_relative(fs::canonical(folder, error));
  if (inside.empty() || *inside.begin() == "..") {
    return user_error(what + " is at `" + location + "`, which leads out of the model's folder");
  }
  auto& file = files_[location];
  if (!file) {
    auto opened = MappedFile::open(real.string());
    if (!opened) return user_error(what + ": " + opened.error().message);
    file = *opened;
  }
  size_t offset = 0, length = bytes;
  if (!parse_number(offset_text, &offset) ||
      (!length_text.empty() && !parse_number(length_text, &length))) {
    return user_error(what + " has an offset or length that is not a number");
  }
  if (length != bytes || offset > file->size() || bytes > file->size() - offset) {
    return user_error(what + " needs " + std::to_string(bytes) + " bytes at offset " +
                      std::to_string(offset) + " of `" + location + "`, which has " +
                      std::to_string(file->size()));
  }
  result.data = file->data() + offset;
  return result;
}

Expected<std::unique_ptr<::onnx::ModelProto>> parse_model(const std::string& path,
                                                          const std::byte* data, size_t size) {
  if (size == 0) return user_error("`" + path + "` is empty");
  if (std::string other = other_format(data, size); !other.empty()) {
    return user_error("`" + path + "` is " + other + ", not an ONNX model");
  }
  auto model = std::make_unique<::onnx::ModelProto>();
  google::protobuf::io::ArrayInputStream stream(
      data, static_cast<int>(std::min<size_t>(size, INT32_MAX)));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(INT32_MAX);
  if (size > INT32_MAX || !model->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    // A prefix that parses as far as it goes is a file that was cut off.
    const bool looks_like_onnx = model->ir_version() > 0 && model->ir_version() < 1000;
    return looks_like_onnx
               ? user_error(
                     "`" + path + "` is cut off or damaged: only part of it is an ONNX model",
                     "copy or export the file again")
               : user_error("`" + path + "` is not an ONNX model");
  }
  if (!model->has_graph() || model->ir_version() <= 0) {
    return user_error("`" + path + "` is not an ONNX model: it has no graph or no version");
  }
  return model;
}

}  // namespace piper::frontend
