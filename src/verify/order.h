// What happens before what within one rank: streams run their instructions in order, waits order across streams.
// Vector clocks, one entry a stream: an instruction's clock counts the instructions of each stream that have completed
// before it starts. Messages between ranks also order, but are not used: a plan has to be right on its own.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace piper::verify {

class Order {
 public:
  explicit Order(const plan::Program& program);

  // `first` has completed before `second` starts, under every timing.
  bool before(int first, int second) const {
    return clocks_[static_cast<size_t>(second) * streams_ + stream_[first]] > position_[first];
  }
  // The last instruction of `stream` that has completed before `instruction` starts, or -1.
  int last_before(int stream, int instruction) const;

 private:
  size_t streams_;
  std::vector<int32_t> stream_;    // of each instruction
  std::vector<int32_t> position_;  // of each instruction on its stream
  std::vector<std::vector<int32_t>> queues_;
  std::vector<int32_t> clocks_;    // [instruction][stream]
};

}  // namespace piper::verify
