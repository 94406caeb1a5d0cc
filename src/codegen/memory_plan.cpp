#include "codegen/memory_plan.h"

#include <algorithm>

#include "codegen/best_fit.h"
#include "codegen/kernel_lists.h"

namespace piper::codegen {

namespace {

// Of a buffer: per stream, the first instruction that touches it and the position of the last.
struct Accesses {
  std::vector<int32_t> first;  // instruction, -1: none
  std::vector<int32_t> last;   // position, 0: none
};

class HappensBefore {
 public:
  HappensBefore(const plan::Program& program, const std::vector<std::vector<int32_t>>& clock, const std::vector<int32_t>& position)
      : clock_(clock), position_(position), streams_(program.streams.size()) {
    accesses_.assign(program.buffers.size(), {std::vector<int32_t>(streams_, -1), std::vector<int32_t>(streams_, 0)});
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const plan::Instruction& in = program.instructions[i];
      stream_of_.push_back(in.stream);
      for (const plan::BufferRange& r : in.ranges) {
        Accesses& a = accesses_[static_cast<size_t>(r.buffer)];
        const size_t s = static_cast<size_t>(in.stream);
        if (a.first[s] < 0) a.first[s] = static_cast<int32_t>(i);
        a.last[s] = position[i];
      }
    }
  }

  // Whether every access of x has ended before any access of y starts.
  bool before(size_t x, size_t y) const {
    for (size_t sy = 0; sy < streams_; ++sy) {
      const int32_t first = accesses_[y].first[sy];
      if (first < 0) continue;
      const auto& clock = clock_[static_cast<size_t>(first)];
      for (size_t sx = 0; sx < streams_; ++sx) {
        if (accesses_[x].last[sx] > clock[sx]) return false;
      }
    }
    return true;
  }

 private:
  const std::vector<std::vector<int32_t>>& clock_;
  const std::vector<int32_t>& position_;
  size_t streams_;
  std::vector<Accesses> accesses_;
  std::vector<int32_t> stream_of_;
};

}  // namespace

void plan_memory(plan::Program& program, const std::vector<std::vector<int32_t>>& clock, const std::vector<int32_t>& position) {
  int64_t end = 0;
  std::vector<size_t> dynamic;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    if (!program.buffers[b].persistent) {
      dynamic.push_back(b);
      continue;
    }
    program.buffers[b].offset = end;
    end += align(program.buffers[b].bytes);
  }
  const HappensBefore order(program, clock, position);
  std::vector<int64_t> sizes, offsets;
  for (size_t b : dynamic) sizes.push_back(align(program.buffers[b].bytes));
  const auto conflicts = [&](size_t i, size_t j) {
    return !order.before(dynamic[i], dynamic[j]) && !order.before(dynamic[j], dynamic[i]);
  };
  const int64_t used = best_fit(sizes, conflicts, offsets);
  for (size_t i = 0; i < dynamic.size(); ++i) program.buffers[dynamic[i]].offset = end + offsets[i];
  program.arena_bytes = end + used;
}

}  // namespace piper::codegen
