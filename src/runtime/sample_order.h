// Which sample of the data stands at position p of a run's endless sequence of samples: step k of a global batch of B
// takes positions kB .. kB+B-1. An epoch is one walk over all samples, each exactly once.
#pragma once

#include <cstdint>

namespace piper::runtime {

class SampleOrder {
 public:
  SampleOrder() = default;
  // With `shuffle` every epoch has its own order, a function of seed and epoch alone; without it the file's order.
  SampleOrder(int64_t samples, uint64_t seed, bool shuffle);

  int64_t samples() const { return samples_; }
  int64_t at(int64_t position) const;

 private:
  int64_t samples_ = 1;
  uint64_t seed_ = 0;
  bool shuffle_ = false;
  int half_bits_ = 1;
};

}  // namespace piper::runtime
