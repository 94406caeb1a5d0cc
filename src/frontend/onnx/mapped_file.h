// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "support/error.h"

namespace piper::frontend {

class MappedFile {
 public:
  static support::Expected<std::shared_ptr<const MappedFile>> open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_;
  size_t size_;
};

}  // namespace piper::frontend
