#include "ops/cpu/strided.h"

#include "ir/types.h"
#include "support/error.h"

namespace piper::ops {

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  PIPER_CHECK(from.size() <= to.size(), "an operand has more dims than the result");
  const std::vector<int64_t> dense = dense_strides(from);
  std::vector<int64_t> strides(to.size(), 0);
  const size_t extra = to.size() - from.size();
  for (size_t i = 0; i < from.size(); i++) {
    PIPER_CHECK(from[i] == to[i + extra] || from[i] == 1, "an operand does not broadcast to the result");
    if (from[i] != 1) strides[i + extra] = dense[i];
  }
  return strides;
}

StridedLoop StridedLoop::broadcast(const std::vector<int64_t>& shape,
                                   const std::vector<std::vector<int64_t>>& operands) {
  std::vector<std::vector<int64_t>> strides;
  for (const auto& operand : operands) strides.push_back(broadcast_strides(operand, shape));
  return StridedLoop(shape, std::move(strides));
}

StridedLoop::StridedLoop(const std::vector<int64_t>& shape, std::vector<std::vector<int64_t>> strides)
    : elements_(ir::num_elements(shape)), operands_(strides.size()) {
  PIPER_CHECK(operands_ <= kMaxOperands && shape.size() <= kMaxRank, "a strided loop is too wide");
  std::vector<int64_t> sizes;     // innermost first, folded
  std::vector<Offsets> folded;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    Offsets here = {};
    for (size_t k = 0; k < operands_; k++) here[k] = strides[k][i];
    bool continues = !sizes.empty();
    for (size_t k = 0; continues && k < operands_; k++) continues = here[k] == folded.back()[k] * sizes.back();
    if (continues) {
      sizes.back() *= shape[i];
    } else {
      sizes.push_back(shape[i]);
      folded.push_back(here);
    }
  }
  if (!sizes.empty()) {
    inner_ = sizes[0];
    inner_strides_ = folded[0];
  } else {
    // A single element: any stride serves, and 1 takes the plain path.
    inner_strides_.fill(1);
  }
  for (size_t i = sizes.size(); i-- > 1;) {
    outer_.push_back(sizes[i]);
    outer_strides_.push_back(folded[i]);
  }
}

}  // namespace piper::ops
