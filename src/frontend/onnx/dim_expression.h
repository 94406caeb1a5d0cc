// The text of a symbolic dim: a name, a number, or what torch.export computed from them:
// "s77 + 1", "2*s0", "Max(1, s0//2)".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/types.h"

namespace piper::frontend {

struct DimText {
  std::optional<ir::Dim> value;       // nothing when it cannot be computed
  std::vector<std::string> unbound;   // its names without a size
  bool understood = true;             // false: another kind of expression
};

// `size_of` gives the size of a name, or nothing.
DimText evaluate_dim(const std::string& text,
                     const std::function<std::optional<ir::Dim>(const std::string&)>& size_of);

}  // namespace piper::frontend
