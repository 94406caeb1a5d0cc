// What the attention kernels share: sizes, how query rows are cut into blocks, and the tensors of a run.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/kernel.h"

namespace piper::ops {

constexpr int64_t kMaxBlock = 96;        // query rows of a block
constexpr int64_t kCausalBlock = 36;     // fewer under a causal mask: what a block's last row sees is computed for all
constexpr int64_t kBlockScores = 65536;  // about how many scores a block has: they stay in the second-level cache

// Up to whole vectors of any instruction set.
inline int64_t round_up(int64_t n) { return (n + 15) / 16 * 16; }

enum class MaskKind { kNone, kBool, kFloat };

// Query rows [first, first + rows) of one head.
struct QueryBlock {
  int64_t batch, head, first, rows;
};

// q[batch, heads, rows, d], k[batch, groups, keys, d], v[batch, groups, keys, e].
struct AttentionShape {
  int64_t batch, heads, rows, d, groups, keys, e;
  bool causal;
  double scale;
  MaskKind mask = MaskKind::kNone;
  int64_t mask_stride[4] = {};  // 0 where it broadcasts
  int64_t block;                // query rows of a block
  int64_t ld;                   // distance of rows of scores and of transposed keys

  // Works for Attention and AttentionGrad: q, k, v and mask come first.
  explicit AttentionShape(const KernelSpec& spec) {
    const std::vector<int64_t>&q = spec.inputs[0].shape, &v = spec.inputs[2].shape;
    batch = q[0], heads = q[1], rows = q[2], d = q[3];
    groups = v[1], keys = v[2], e = v[3];
    causal = spec.attrs.i("causal") != 0;
    scale = spec.attrs.f("scale", 1 / std::sqrt(static_cast<double>(d)));
    // Rows that are a power of two apart would fall into few sets of the cache.
    ld = round_up(keys) + 16;
    block = std::clamp<int64_t>(kBlockScores / ld, 12, causal ? kCausalBlock : kMaxBlock) / 6 * 6;
    if (spec.inputs.size() > 3 && spec.inputs[3].present) set_mask(spec.inputs[3]);
  }

  // How many keys row i sees, masks aside.
  int64_t visible(int64_t i) const { return causal ? std::min(keys, i + 1) : keys; }
  int64_t group_of(const QueryBlock& b) const { return b.batch * groups + b.head / (heads / groups); }
  int64_t mask_at(int64_t b, int64_t head, int64_t row) const {
    return b * mask_stride[0] + head * mask_stride[1] + row * mask_stride[2];
  }

 private:
  void set_mask(const TensorDesc& desc) {
    mask = desc.dtype == ir::DType::kBool ? MaskKind::kBool : MaskKind::kFloat;
    int64_t step = 1;
    for (size_t i = desc.shape.size(), j = 4; i-- > 0;) {
      mask_stride[--j] = desc.shape[i] == 1 ? 0 : step;
      step *= desc.shape[i];
    }
  }
};

template <class T>
struct AttentionForward {
  const T *q, *k_t, *v;  // k_t: of every key head, transposed to [d, ld]
  const void* mask;
  T *out, *lse;
};

template <class T>
struct AttentionBackward {
  const T *q, *k, *v;
  const void* mask;
  const T *out, *lse, *dout;
  T *dq, *dk, *dv;
};

}  // namespace piper::ops
