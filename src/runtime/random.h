// Counter-based random numbers (Philox 4x32-10): a value depends on a key and its index only, never on who asks for it
// or in which order.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace piper::runtime {

using PhiloxBlock = std::array<uint32_t, 4>;

// The 128 bits at `counter` of the sequence `key`.
inline PhiloxBlock philox(uint64_t key, uint64_t counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  PhiloxBlock x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t{0xD2511F53} * x[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

// 64 random bits: element `index` of the sequence `key`.
inline uint64_t random_bits(uint64_t key, uint64_t index) {
  const PhiloxBlock block = philox(key, index / 2);
  const size_t half = (index % 2) * 2;
  return block[half] | uint64_t{block[half + 1]} << 32;
}

// Uniform in [0, 1), with 24 random bits, so that it is exact in f32.
inline double random_uniform(uint64_t key, uint64_t index) {
  return static_cast<double>(random_bits(key, index) >> 40) * 0x1p-24;
}

// Standard normal (Box-Muller: an even index takes the cosine, its odd neighbour the sine).
inline double random_normal(uint64_t key, uint64_t index) {
  const PhiloxBlock block = philox(key, index / 2);
  // (0, 1], so that the logarithm is finite.
  const double u = (static_cast<double>(block[0] | uint64_t{block[1]} << 32) + 1) * 0x1p-64;
  const double angle = 2 * std::numbers::pi * (static_cast<double>(block[2]) * 0x1p-32);
  const double radius = std::sqrt(-2 * std::log(u));
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace piper::runtime
