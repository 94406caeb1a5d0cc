// What travels between StoreServer and StoreClient: frames of a 32-bit length (little endian) and that many bytes, the
// first of which says what the frame is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piper::runtime::store_wire {

// Requests.
inline constexpr char kHello = 'H';  // greeting and token
inline constexpr char kSet = 'S';    // length of the key, key, value
inline constexpr char kGet = 'G';    // milliseconds to wait, key
// Replies.
inline constexpr char kOk = 'O';
inline constexpr char kRefused = 'N';
inline constexpr char kValue = 'V';
inline constexpr char kTimeout = 'T';

inline constexpr std::string_view kGreeting = "piper-store-1 ";
// What a stranger may make us keep, and what a worker may.
inline constexpr size_t kMaxHello = 256;
inline constexpr size_t kMaxFrame = size_t{64} << 20;

inline void put_u32(std::string& out, uint32_t value) {
  for (int i = 0; i < 4; i++) out.push_back(static_cast<char>(value >> (8 * i)));
}
inline uint32_t get_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; i++) value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

inline std::string frame(std::string_view payload) {
  std::string out;
  put_u32(out, static_cast<uint32_t>(payload.size()));
  out.append(payload);
  return out;
}

}  // namespace piper::runtime::store_wire
