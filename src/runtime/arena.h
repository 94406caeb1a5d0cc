// One block of zeroed host memory, aligned to pages (so to plan::kAlignment as well).
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/error.h"

namespace piper::runtime {

class Arena {
 public:
  static support::Expected<Arena> allocate(int64_t bytes);
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return static_cast<int64_t>(size_); }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace piper::runtime
