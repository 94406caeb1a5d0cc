// Walking a dense result together with operands that are broadcast, permuted or cut: the shape is folded into as few
// dims as the strides allow, and the innermost one is handed out as runs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ops/cpu/parallel.h"

namespace piper::ops {

// Row-major strides of a dense tensor, in elements.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape);
// Strides with which an operand of shape `from` is read as `to` (numpy broadcast): 0 where it repeats.
std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& from, const std::vector<int64_t>& to);

class StridedLoop {
 public:
  static constexpr size_t kMaxOperands = 3;

  // strides[k][i] belongs to dim i of operand k.
  StridedLoop(const std::vector<int64_t>& shape, std::vector<std::vector<int64_t>> strides);
  // Operands that broadcast to `shape`.
  static StridedLoop broadcast(const std::vector<int64_t>& shape, const std::vector<std::vector<int64_t>>& operands);

  int64_t elements() const { return elements_; }
  // Stride of operand k along a run.
  int64_t inner_stride(size_t k) const { return inner_strides_[k]; }

  // Calls fn(position, count, offsets) for runs that cover the result in order: `position` is the run's first element
  // in the dense result, offsets[k] that of operand k. Runs are spread over threads.
  template <class Fn>
  void run(const Fn& fn) const {
    parallel_pieces(elements_, kGrain, [&](int64_t begin, int64_t end) { run_piece(begin, end, fn); });
  }

 private:
  using Offsets = std::array<int64_t, kMaxOperands>;

  template <class Fn>
  void run_piece(int64_t begin, int64_t end, const Fn& fn) const {
    const size_t rank = outer_.size();
    int64_t index[kMaxRank];
    Offsets offsets = {};
    int64_t within = begin % inner_;
    int64_t rest = begin / inner_;
    for (size_t i = rank; i-- > 0;) {
      index[i] = rest % outer_[i];
      rest /= outer_[i];
      for (size_t k = 0; k < operands_; k++) offsets[k] += index[i] * outer_strides_[i][k];
    }
    for (int64_t position = begin; position < end;) {
      const int64_t count = std::min(inner_ - within, end - position);
      Offsets at = offsets;
      for (size_t k = 0; k < operands_; k++) at[k] += within * inner_strides_[k];
      fn(position, count, at.data());
      position += count;
      within = 0;
      advance(index, offsets);
    }
  }

  void advance(int64_t* index, Offsets& offsets) const {
    for (size_t i = outer_.size(); i-- > 0;) {
      for (size_t k = 0; k < operands_; k++) offsets[k] += outer_strides_[i][k];
      if (++index[i] < outer_[i]) return;
      for (size_t k = 0; k < operands_; k++) offsets[k] -= outer_[i] * outer_strides_[i][k];
      index[i] = 0;
    }
  }

  static constexpr size_t kMaxRank = 16;
  int64_t elements_ = 1;
  size_t operands_ = 0;
  int64_t inner_ = 1;
  Offsets inner_strides_ = {};
  std::vector<int64_t> outer_;           // sizes, outermost first
  std::vector<Offsets> outer_strides_;   // per outer dim
};

}  // namespace piper::ops
