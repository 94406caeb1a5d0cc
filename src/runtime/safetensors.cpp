#include "runtime/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/strings.h"

namespace piper::runtime {

namespace {

using nlohmann::json;
using support::Expected;
using support::user_error;

constexpr uint64_t kMaxHeader = 100'000'000;

struct TypeRow {
  std::string_view name;
  int64_t size;
  std::optional<ir::DType> dtype;
};
constexpr TypeRow kTypes[] = {
    {"F64", 8, ir::DType::kF64},   {"I64", 8, ir::DType::kI64}, {"U64", 8, {}}, {"F32", 4, ir::DType::kF32},
    {"I32", 4, ir::DType::kI32},   {"U32", 4, {}},              {"F16", 2, {}}, {"BF16", 2, ir::DType::kBF16},
    {"I16", 2, {}},                {"U16", 2, {}},              {"I8", 1, {}},  {"U8", 1, ir::DType::kU8},
    {"BOOL", 1, ir::DType::kBool}, {"F8_E4M3", 1, {}},          {"F8_E5M2", 1, {}},
};

const TypeRow* find_type(const std::string& name) {
  auto row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& r) { return r.name == name; });
  return row == std::end(kTypes) ? nullptr : row;
}

bool read_sizes(const json& array, std::vector<int64_t>* sizes) {
  if (!array.is_array()) return false;
  for (const json& size : array) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return false;
    sizes->push_back(static_cast<int64_t>(size.get<uint64_t>()));
  }
  return true;
}

// Bytes of a tensor, or -1 when they do not fit an int64.
int64_t bytes_of(int64_t element, const std::vector<int64_t>& shape) {
  int64_t bytes = element;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

// What is wrong with the entry, or "".
std::string read_entry(const json& entry, std::span<const std::byte> data, TensorView* tensor) {
  if (!entry.is_object()) return "is no object";
  auto type = entry.find("dtype"), shape = entry.find("shape"), place = entry.find("data_offsets");
  if (type == entry.end() || !type->is_string()) return "has no dtype";
  if (shape == entry.end() || !read_sizes(*shape, &tensor->shape)) return "has no valid shape";
  std::vector<int64_t> offsets;
  if (place == entry.end() || !read_sizes(*place, &offsets) || offsets.size() != 2) return "has no valid data_offsets";
  if (offsets[0] > offsets[1] || static_cast<uint64_t>(offsets[1]) > data.size()) return "lies outside the file";
  tensor->type = type->get<std::string>();
  tensor->data = data.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(offsets[1] - offsets[0]));
  if (const TypeRow* row = find_type(tensor->type)) {
    tensor->dtype = row->dtype;
    if (bytes_of(row->size, tensor->shape) != offsets[1] - offsets[0]) return "has another size than its shape asks for";
  }
  return "";
}

// The format allows neither holes nor overlaps.
bool covers(const std::vector<TensorView>& tensors, std::span<const std::byte> data) {
  std::vector<std::pair<const std::byte*, size_t>> places;
  for (const TensorView& tensor : tensors) places.emplace_back(tensor.data.data(), tensor.data.size());
  std::sort(places.begin(), places.end());
  const std::byte* at = data.data();
  for (const auto& [begin, size] : places) {
    if (begin != at) return false;
    at += size;
  }
  return at == data.data() + data.size();
}

std::string file_type(ir::DType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return std::string(row.name);
  }
  return "";
}

}  // namespace

std::string describe(const TensorView& tensor) {
  std::string text = tensor.dtype ? std::string(ir::dtype_name(*tensor.dtype)) : tensor.type;
  std::vector<std::string> sizes;
  for (int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
  return text + "[" + support::join(sizes, ", ") + "]";
}

Expected<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> bytes, const std::string& where) {
  auto broken = [&](const std::string& what) { return user_error("`" + where + "` is no safetensors file: " + what); };
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) return broken("it has only " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  bytes = bytes.subspan(sizeof header_bytes);
  if (header_bytes > kMaxHeader || header_bytes > bytes.size()) {
    return broken("its header claims " + std::to_string(header_bytes) + " bytes");
  }
  const char* text = reinterpret_cast<const char*>(bytes.data());
  const json header = json::parse(text, text + header_bytes, nullptr, false);
  if (header.is_discarded() || !header.is_object()) return broken("its header is not a JSON object");
  const std::span<const std::byte> data = bytes.subspan(header_bytes);
  std::vector<TensorView> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    TensorView tensor;
    tensor.name = name;
    const std::string wrong = read_entry(entry, data, &tensor);
    if (!wrong.empty()) return broken("tensor `" + name + "` " + wrong);
    tensors.push_back(std::move(tensor));
  }
  if (!covers(tensors, data)) return broken("its tensors overlap or leave bytes unused");
  return tensors;
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return tl::make_unexpected(mapped.error());
  SafetensorsFile file;
  file.file_ = std::move(*mapped);
  auto tensors = parse_safetensors(file.file_.bytes(), path);
  if (!tensors) return tl::make_unexpected(tensors.error());
  file.tensors_ = std::move(*tensors);
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                [](const TensorView& tensor, std::string_view n) { return tensor.name < n; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

std::string SafetensorsFile::contents() const {
  constexpr size_t kMost = 20;
  std::vector<std::string> parts;
  for (size_t i = 0; i < tensors_.size() && i < kMost; i++) {
    parts.push_back("`" + tensors_[i].name + "` " + describe(tensors_[i]));
  }
  if (tensors_.size() > kMost) parts.push_back("and " + std::to_string(tensors_.size() - kMost) + " more");
  return parts.empty() ? "no tensors" : support::join(parts, ", ");
}

bool stored_before(const TensorInfo& a, const TensorInfo& b) {
  const int64_t left = ir::dtype_size(a.dtype), right = ir::dtype_size(b.dtype);
  return left != right ? left > right : a.name < b.name;
}

namespace {

// The header's text, padded to keep the data aligned, and the bytes of all tensors.
std::string make_header(const std::vector<TensorInfo>& tensors, int64_t* data_bytes) {
  json header = json::object();
  int64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    const int64_t end = at + bytes_of(ir::dtype_size(tensor.dtype), tensor.shape);
    header[tensor.name] = {{"dtype", file_type(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  *data_bytes = at;
  // A name that is no UTF-8 must not end the run at its very end.
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Expected<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, const std::vector<TensorInfo>& tensors) {
  SafetensorsWriter writer;
  writer.path_ = path;
  writer.beside_ = path + ".tmp";
  writer.file_ = std::fopen(writer.beside_.c_str(), "wbe");
  if (!writer.file_) return tl::make_unexpected(writer.failure("create").error());
  int64_t data_bytes = 0;
  const std::string header = make_header(tensors, &data_bytes);
  const uint64_t header_bytes = header.size();
  writer.missing_ = static_cast<int64_t>(sizeof header_bytes + header.size()) + data_bytes;
  if (auto done = writer.append(&header_bytes, sizeof header_bytes); !done) return tl::make_unexpected(done.error());
  if (auto done = writer.append(header.data(), header.size()); !done) return tl::make_unexpected(done.error());
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      beside_(std::move(other.beside_)),
      file_(std::exchange(other.file_, nullptr)),
      missing_(other.missing_) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  std::fclose(file_);
  ::unlink(beside_.c_str());
}

Expected<void> SafetensorsWriter::failure(const char* what) const {
  return user_error(std::string("cannot ") + what + " `" + beside_ + "`: " + std::strerror(errno));
}

Expected<void> SafetensorsWriter::append(const void* data, size_t bytes) {
  missing_ -= static_cast<int64_t>(bytes);
  if (bytes > 0 && std::fwrite(data, 1, bytes, file_) != bytes) return failure("write");
  return {};
}

Expected<void> SafetensorsWriter::finish() {
  PIPER_CHECK(missing_ == 0, "`" + path_ + "` lacks " + std::to_string(missing_) + " bytes of its tensors");
  // The rename must not reach the disk before the data: otherwise a crash leaves a short file under the final name.
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return failure("write");
  const int closed = std::fclose(std::exchange(file_, nullptr));
  if (closed != 0 || std::rename(beside_.c_str(), path_.c_str()) != 0) {
    auto error = failure("finish");
    ::unlink(beside_.c_str());
    return error;
  }
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
  return {};
}

}  // namespace piper::runtime
