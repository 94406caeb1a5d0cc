#include "verify/order.h"

#include <algorithm>

namespace piper::verify {

Order::Order(const plan::Program& program)
    : streams_(program.streams.size()), queues_(program.streams.size()), clocks_(program.instructions.size() * streams_, 0) {
  for (size_t i = 0; i < program.instructions.size(); i++) {
    const plan::Instruction& instruction = program.instructions[i];
    std::vector<int32_t>& queue = queues_[instruction.stream];
    int32_t* clock = clocks_.data() + i * streams_;
    // Everything before `earlier`, and `earlier` itself.
    auto after = [&](int32_t earlier) {
      const int32_t* other = clocks_.data() + static_cast<size_t>(earlier) * streams_;
      for (size_t s = 0; s < streams_; s++) clock[s] = std::max(clock[s], other[s]);
      int32_t& own = clock[stream_[earlier]];
      own = std::max(own, position_[earlier] + 1);
    };
    if (!queue.empty()) after(queue.back());
    for (int32_t wait : instruction.waits) after(wait);
    stream_.push_back(instruction.stream);
    position_.push_back(static_cast<int32_t>(queue.size()));
    queue.push_back(static_cast<int32_t>(i));
  }
}

int Order::last_before(int stream, int instruction) const {
  int32_t completed = clocks_[static_cast<size_t>(instruction) * streams_ + static_cast<size_t>(stream)];
  return completed == 0 ? -1 : queues_[stream][completed - 1];
}

}  // namespace piper::verify
