#include "runtime/token_file.h"

#include <cstring>

namespace piper::runtime {

using support::Expected;
using support::user_error;

namespace {

// llm.c: 256 32-bit words, then the tokens.
constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);
struct LlmcFormat {
  int32_t magic;
  int32_t version;
  int width;
};
constexpr LlmcFormat kLlmcFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

// Leaves tokens_ null when the file has no header of llm.c.
Expected<void> TokenFile::read_header() {
  const auto bytes = file_.bytes();
  if (bytes.size() < kHeaderBytes) return {};
  const int32_t magic = load<int32_t>(bytes.data());
  for (const LlmcFormat& format : kLlmcFormats) {
    if (magic != format.magic) continue;
    const int32_t version = load<int32_t>(bytes.data() + 4), count = load<int32_t>(bytes.data() + 8);
    if (version != format.version) {
      return user_error("`" + path() + "` has llm.c's header, but version " + std::to_string(version) + " instead of " +
                        std::to_string(format.version));
    }
    const uint64_t expected = kHeaderBytes + static_cast<uint64_t>(count < 0 ? 0 : count) * static_cast<uint64_t>(format.width);
    if (count < 0 || expected != bytes.size()) {
      return user_error("`" + path() + "` has " + std::to_string(bytes.size()) + " bytes, its header of " +
                        std::to_string(count) + " tokens asks for " + std::to_string(expected));
    }
    tokens_ = bytes.data() + kHeaderBytes;
    width_ = format.width;
    size_ = count;
    return {};
  }
  return {};
}

Expected<TokenFile> TokenFile::open(const std::string& path, TokenFormat format) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return tl::make_unexpected(mapped.error());
  TokenFile file;
  file.file_ = std::move(*mapped);
  if (format == TokenFormat::kDetect) {
    if (auto header = file.read_header(); !header) return tl::make_unexpected(header.error());
    if (file.tokens_) return file;
  }
  file.width_ = format == TokenFormat::kText ? 1 : format == TokenFormat::kRawU32 ? 4 : 2;
  const size_t bytes = file.file_.bytes().size();
  if (bytes % static_cast<size_t>(file.width_) != 0) {
    return user_error("`" + path + "` has " + std::to_string(bytes) + " bytes, which is no whole number of " +
                          std::to_string(8 * file.width_) + "-bit tokens",
                      "use `text:" + path + "` to train on the bytes of a text");
  }
  file.tokens_ = file.file_.bytes().data();
  file.size_ = static_cast<int64_t>(bytes) / file.width_;
  return file;
}

int64_t TokenFile::at(int64_t index) const {
  int64_t token = 0;
  read(index, 1, &token);
  return token;
}

template <class T>
void TokenFile::read(int64_t begin, int64_t count, T* out) const {
  const std::byte* from = tokens_ + begin * width_;
  if (width_ == 1) {
    for (int64_t i = 0; i < count; i++) out[i] = static_cast<T>(load<uint8_t>(from + i));
  } else if (width_ == 2) {
    for (int64_t i = 0; i < count; i++) out[i] = static_cast<T>(load<uint16_t>(from + 2 * i));
  } else {
    for (int64_t i = 0; i < count; i++) out[i] = static_cast<T>(load<uint32_t>(from + 4 * i));
  }
}
template void TokenFile::read<int32_t>(int64_t, int64_t, int32_t*) const;
template void TokenFile::read<int64_t>(int64_t, int64_t, int64_t*) const;

Expected<void> TokenFile::check_vocabulary(int64_t vocabulary) const {
  constexpr int64_t kBlock = 4096;
  int64_t block[kBlock];
  for (int64_t begin = 0; begin < size_; begin += kBlock) {
    const int64_t count = size_ - begin < kBlock ? size_ - begin : kBlock;
    read(begin, count, block);
    int64_t largest = 0;
    for (int64_t i = 0; i < count; i++) largest = block[i] > largest ? block[i] : largest;
    if (largest < vocabulary) continue;
    for (int64_t i = 0; i < count; i++) {
      if (block[i] < vocabulary) continue;
      return user_error("token " + std::to_string(begin + i) + " of `" + path() + "` is " + std::to_string(block[i]) +
                            ", outside the model's vocabulary of " + std::to_string(vocabulary),
                        "was the file made with the model's tokenizer, and with the same token size?");
    }
  }
  return {};
}

}  // namespace piper::runtime
