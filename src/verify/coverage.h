// Which samples, or bytes, something was done to, and how often. Internal to src/verify.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace piper::verify {

struct Samples {
  int64_t begin = 0, end = 0;
};

class Coverage {
 public:
  void add(Samples samples) {
    if (samples.begin < samples.end) parts_.push_back(samples);
  }
  bool empty() const { return parts_.empty(); }
  // What keeps each element of `whole` from being covered exactly `times` and all others never: "elements 2 to 4 2 times
  // instead of 1"; "" when nothing does.
  std::string differs(Samples whole, int times) const;

 private:
  std::vector<Samples> parts_;
};

// The samples of each microbatch: what the shares of all ranks reach.
std::vector<Samples> microbatches_of(const plan::Plan& plan);

}  // namespace piper::verify
