#include "ops/case.h"

#include <set>

namespace piper::ops {

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  std::set<std::string_view> seen;
  auto add = [&](std::string_view folder, std::vector<OpCase> (*cases)()) {
    if (!seen.insert(folder).second) return;
    for (OpCase& c : cases()) all.push_back(std::move(c));
  };
#define PIPER_OP(name, folder) add(#folder, folder##_cases);
#include "ops/ops.def"
#undef PIPER_OP
  return all;
}

}  // namespace piper::ops
