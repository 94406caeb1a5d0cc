// Reading and writing safetensors files: a header of names, types and places, then the tensors' bytes.
// The reader trusts nothing: a broken or hostile file is an error, never an access outside it.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/types.h"
#include "runtime/mapped_file.h"
#include "support/error.h"

namespace piper::runtime {

struct TensorView {
  std::string name;
  std::string type;                // as the file spells it: "F32"
  std::optional<ir::DType> dtype;  // nothing for types that Piper does not know
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// "f32[32, 16]"
std::string describe(const TensorView& tensor);

// The tensors of a file's bytes, sorted by name; `where` names the file in errors.
support::Expected<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> bytes, const std::string& where);

class SafetensorsFile {
 public:
  static support::Expected<SafetensorsFile> open(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(std::string_view name) const;
  // What the file holds, for errors: "tokens i64[32, 16], labels i64[32, 16]".
  std::string contents() const;

 private:
  MappedFile file_;
  std::vector<TensorView> tensors_;
};

struct TensorInfo {
  std::string name;
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> shape;
};

// Whether `a` stands before `b` in a file: larger elements first, so that all stay aligned, then by name.
bool stored_before(const TensorInfo& a, const TensorInfo& b);

// Writes a file beside its final place and renames it there when it is whole.
class SafetensorsWriter {
 public:
  // `tensors` in the order of stored_before, with distinct names.
  static support::Expected<SafetensorsWriter> create(const std::string& path, const std::vector<TensorInfo>& tensors);
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  // Removes what was written when finish() was not reached.
  ~SafetensorsWriter();

  // The bytes of the tensors, one after another, in any pieces.
  support::Expected<void> append(const void* data, size_t bytes);
  support::Expected<void> finish();

 private:
  SafetensorsWriter() = default;
  support::Expected<void> failure(const char* what) const;

  std::string path_, beside_;
  std::FILE* file_ = nullptr;
  int64_t missing_ = 0;  // bytes still to be appended
};

}  // namespace piper::runtime
