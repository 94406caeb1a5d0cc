#include "runtime/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "support/strings.h"

namespace piper::runtime {

support::Expected<Arena> Arena::allocate(int64_t bytes) {
  Arena arena;
  arena.size_ = static_cast<size_t>(bytes > 0 ? bytes : 1);
  void* data = ::mmap(nullptr, arena.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    arena.size_ = 0;
    return support::user_error("cannot allocate " + support::human_bytes(bytes) + ": " + std::strerror(errno));
  }
  arena.data_ = static_cast<std::byte*>(data);
  // Only a hint; a kernel without huge pages serves small ones.
  constexpr size_t kWorthHugePages = size_t{4} << 20;
  if (arena.size_ >= kWorthHugePages) ::madvise(data, arena.size_, MADV_HUGEPAGE);
  return arena;
}

Arena::~Arena() {
  if (data_) ::munmap(data_, size_);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace piper::runtime
