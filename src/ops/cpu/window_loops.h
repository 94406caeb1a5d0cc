// Loops over the pairs of input and output elements that the taps of a window connect, for one to
// three spatial dims.
#pragma once

#include <array>
#include <vector>

#include "ops/window.h"

namespace piper::ops {

class WindowLoops {
 public:
  WindowLoops(const Window& window, const std::vector<int64_t>& in, const std::vector<int64_t>& out) {
    // Three dims, the missing ones in front.
    const size_t skip = 3 - in.size();
    for (size_t i = 0; i < in.size(); i++) {
      Axis& axis = axes_[skip + i];
      axis.in = in[i];
      axis.kernel = window.kernel[i];
      axis.dilation = window.dilations[i];
      axis.positions.clear();
      for (int64_t o = 0; o < out[i]; o++) {
        const auto [first, end] = window.taps(i, o, 0, in[i]);
        axis.positions.push_back({o * window.strides[i] - window.begin[i], first, end});
      }
    }
  }

  // Calls fn(input element, output element, tap), by ascending output element and then tap.
  template <class Fn>
  void each(const Fn& fn) const {
    const Axis &a = axes_[0], &b = axes_[1], &c = axes_[2];
    int64_t out = 0;
    for (const Position& pa : a.positions) {
      for (const Position& pb : b.positions) {
        for (const Position& pc : c.positions) {
          for (int64_t i = pa.first; i < pa.end; i++) {
            for (int64_t j = pb.first; j < pb.end; j++) {
              const int64_t row = ((pa.start + i * a.dilation) * b.in + pb.start + j * b.dilation) * c.in + pc.start;
              const int64_t tap = (i * b.kernel + j) * c.kernel;
              for (int64_t k = pc.first; k < pc.end; k++) fn(row + k * c.dilation, out, tap + k);
            }
          }
          out++;
        }
      }
    }
  }

 private:
  // Where a window starts, and which of its taps are inside the input.
  struct Position {
    int64_t start = 0, first = 0, end = 1;
  };
  struct Axis {
    int64_t in = 1, kernel = 1, dilation = 1;
    std::vector<Position> positions{Position{}};
  };
  std::array<Axis, 3> axes_;
};

}  // namespace piper::ops
