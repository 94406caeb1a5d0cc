// How streams wait for each other: a count of completed instructions that others sleep on. Linux futexes are used
// directly, because std::atomic's notify makes a system call even when nobody sleeps, and its wait yields the core first.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace piper::runtime {

// Alone on its cache line.
class alignas(64) StreamCounter {
 public:
  // Only while nobody waits.
  void reset() { done_.store(0, std::memory_order_relaxed); }

  // One more; what happened before is visible to those who waited for it.
  void advance() {
    done_.fetch_add(1, std::memory_order_seq_cst);
    wake();
  }

  // Ends every wait, now and until the next reset.
  void stop() {
    done_.fetch_or(kStopped, std::memory_order_seq_cst);
    wake();
  }

  // Returns when the count has reached `target`; looks `spins` times before it sleeps.
  void wait_for(uint32_t target, int spins) {
    for (int spin = 0; spin <= spins; spin++) {
      if (done_.load(std::memory_order_acquire) >= target) return;
      pause();
    }
    // Sequential consistency of these two and of the two in advance(): either this thread sees the new count or the
    // other one sees the sleeper. The futex itself refuses to sleep on a count that has moved on.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (uint32_t seen = done_.load(std::memory_order_seq_cst); seen < target;
         seen = done_.load(std::memory_order_seq_cst)) {
      ::syscall(SYS_futex, &done_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  // Exceeds any target.
  static constexpr uint32_t kStopped = uint32_t{1} << 31;

  void wake() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    ::syscall(SYS_futex, &done_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> sleepers_{0};
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain word");
};

}  // namespace piper::runtime
