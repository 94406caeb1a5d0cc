// Dense typed ids: an int32 that cannot be confused with another kind of id.
// Declare one with PIPER_ID(NodeId); variables end in `_id`, -1 means none.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace piper::support {

template <class Tag>
struct Id {
  int32_t value = -1;
  constexpr Id() = default;
  constexpr explicit Id(int64_t v) : value(static_cast<int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace piper::support

#define PIPER_ID(Name) using Name = ::piper::support::Id<struct Name##Tag>

template <class Tag>
struct std::hash<piper::support::Id<Tag>> {
  size_t operator()(piper::support::Id<Tag> id) const noexcept { return std::hash<int32_t>()(id.value); }
};
