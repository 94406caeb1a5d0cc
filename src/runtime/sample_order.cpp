#include "runtime/sample_order.h"

#include "runtime/random.h"

namespace piper::runtime {

SampleOrder::SampleOrder(int64_t samples, uint64_t seed, bool shuffle)
    : samples_(samples), seed_(seed), shuffle_(shuffle) {
  while ((int64_t{1} << (2 * half_bits_)) < samples) half_bits_++;
}

int64_t SampleOrder::at(int64_t position) const {
  const int64_t epoch = position / samples_;
  const int64_t index = position % samples_;
  if (!shuffle_) return index;
  // A Feistel network permutes the smallest square power of two that holds all samples; walking the cycle until an
  // index falls inside makes that a permutation of the samples. No table: any position costs the same.
  constexpr int kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  const uint64_t key = random_bits(seed_ ^ 0x9E6D3C4B1A2F5E07, static_cast<uint64_t>(epoch));
  uint64_t x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < kRounds; round++) {
      const uint64_t mixed = philox(key + round, right)[0];
      const uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(samples_));
  return static_cast<int64_t>(x);
}

}  // namespace piper::runtime
