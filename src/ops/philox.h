// Random numbers as a pure function of where they are used (Philox 4x32-10, Salmon et al. 2011): nothing is stored, so a
// recomputation, another cut of the batch or another device gives the same ones.
#pragma once

#include <array>
#include <cstdint>

namespace piper::ops {

using PhiloxBlock = std::array<uint32_t, 4>;

// Four random words for a counter and a key.
inline PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// A word mixed into a key so that neighbours have nothing in common (SplitMix64's finalizer).
inline uint64_t mix_key(uint64_t key, uint64_t word) {
  uint64_t z = key + 0x9E3779B97F4A7C15 * (word + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// The random words of one use (a dropout in a step, say), for element `element` of sample `sample`; four neighbouring
// elements share a block.
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint64_t step, uint64_t use) : key_(mix_key(mix_key(seed, step), use)) {}
  PhiloxBlock block(uint64_t sample, uint64_t block) const {
    return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(sample),
                   static_cast<uint32_t>(sample >> 32)},
                  key_);
  }
  uint32_t word(uint64_t sample, uint64_t element) const { return block(sample, element / 4)[element % 4]; }
  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
};

}  // namespace piper::ops
