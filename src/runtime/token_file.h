// Files of tokens, mapped: raw u16 (nanoGPT), raw u32, llm.c's with a header, and text as bytes.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/mapped_file.h"
#include "support/error.h"

namespace piper::runtime {

enum class TokenFormat : uint8_t {
  kDetect,  // llm.c's by its magic number, else raw u16
  kRawU32,
  kText,  // a byte is a token
};

class TokenFile {
 public:
  static support::Expected<TokenFile> open(const std::string& path, TokenFormat format);

  int64_t size() const { return size_; }
  int64_t at(int64_t index) const;
  // Writes tokens [begin, begin + count) as integers of type T.
  template <class T>
  void read(int64_t begin, int64_t count, T* out) const;

  // An error naming the first token that is not below `vocabulary`, and where it is.
  support::Expected<void> check_vocabulary(int64_t vocabulary) const;
  const std::string& path() const { return file_.path(); }

 private:
  support::Expected<void> read_header();

  MappedFile file_;
  const std::byte* tokens_ = nullptr;
  int64_t size_ = 0;
  int width_ = 2;  // bytes a token
};

}  // namespace piper::runtime
