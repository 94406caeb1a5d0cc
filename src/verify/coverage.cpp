#include "verify/coverage.h"

#include <fmt/format.h>

#include <map>

namespace piper::verify {

std::string Coverage::differs(Samples whole, int times) const {
  std::map<int64_t, int64_t> change;  // at each border: how many parts begin, less how many end
  change[whole.begin];
  change[whole.end];
  for (Samples part : parts_) {
    change[part.begin]++;
    change[part.end]--;
  }
  int64_t now = 0;
  for (auto it = change.begin(); it != change.end(); ++it) {
    now += it->second;
    int64_t expected = it->first >= whole.begin && it->first < whole.end ? times : 0;
    if (now == expected) continue;
    return fmt::format("{} to {} done {} times instead of {}", it->first, std::next(it)->first, now, expected);
  }
  return "";
}

}  // namespace piper::verify
