// Reads the initial values of parameters out of an ONNX file: a name in, its type and bytes out.
// The runtime uses it when it loads a plan, so it knows nothing of models and shows no protobuf.
// All forms are read: raw bytes, typed fields, and external data, which is mapped from disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/types.h"
#include "support/error.h"

namespace piper::frontend {

// Dense, row-major, little endian. The bytes live as long as the reader.
struct Initializer {
  std::string name;
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> dims;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

class InitializerReader {
 public:
  InitializerReader(InitializerReader&&) noexcept;
  InitializerReader& operator=(InitializerReader&&) noexcept;
  ~InitializerReader();

  // Opens an ONNX file. Errors are the user's: missing, cut off, not ONNX.
  static support::Expected<InitializerReader> open(const std::string& path);
  // Names of all initializers in file order.
  std::vector<std::string> names() const;
  // The initializer of that name. Not safe to call from two threads at once.
  support::Expected<Initializer> find(std::string_view name) const;

 private:
  struct State;
  explicit InitializerReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace piper::frontend
