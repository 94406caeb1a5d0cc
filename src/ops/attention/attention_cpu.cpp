// Attention on the CPU. Forward: blocks of query rows of one head, whose scores are a block of scratch; backward: the
// same blocks again, their probabilities recomputed from q, k and lse. All keys of a row are in the block, so softmax
// is the plain one. Gradients of a key head are summed over its query heads and blocks in order, by one thread.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/attention_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/attention/attention_shape.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/tile_gemm-inl.h"
#include "ops/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

// Rows r..r+3, columns c..c+3 of `from` become columns of `to`.
template <class T>
void transpose_4x4(const T* from, int64_t from_row, T* to, int64_t to_row) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    const hn::FixedTag<T, 4> d;
    const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_row);
    const auto e = hn::LoadU(d, from + 2 * from_row), f = hn::LoadU(d, from + 3 * from_row);
    const auto low_ab = hn::InterleaveLower(d, a, b), high_ab = hn::InterleaveUpper(d, a, b);
    const auto low_ef = hn::InterleaveLower(d, e, f), high_ef = hn::InterleaveUpper(d, e, f);
    hn::StoreU(hn::ConcatLowerLower(d, low_ef, low_ab), d, to);
    hn::StoreU(hn::ConcatUpperUpper(d, low_ef, low_ab), d, to + to_row);
    hn::StoreU(hn::ConcatLowerLower(d, high_ef, high_ab), d, to + 2 * to_row);
    hn::StoreU(hn::ConcatUpperUpper(d, high_ef, high_ab), d, to + 3 * to_row);
    return;
  }
#endif
  for (int64_t r = 0; r < 4; r++) {
    for (int64_t c = 0; c < 4; c++) to[c * to_row + r] = from[r * from_row + c];
  }
}

// to[c, r] = from[r, c] for rows < n; columns from n to `ld` become zeros.
template <class T>
void transpose(const T* from, int64_t n, int64_t width, T* to, int64_t ld) {
  const int64_t whole = n / 4 * 4, whole_width = width / 4 * 4;
  for (int64_t r = 0; r < whole; r += 4) {
    for (int64_t c = 0; c < whole_width; c += 4) transpose_4x4(from + r * width + c, width, to + c * ld + r, ld);
    for (int64_t c = whole_width; c < width; c++) {
      for (int64_t i = r; i < r + 4; i++) to[c * ld + i] = from[i * width + c];
    }
  }
  for (int64_t c = 0; c < width; c++) {
    for (int64_t r = whole; r < n; r++) to[c * ld + r] = from[r * width + c];
    std::fill(to + c * ld + n, to + (c + 1) * ld, T(0));
  }
}

// Adds the mask to a row of scores; what a boolean mask hides becomes -infinity.
template <class T>
void apply_mask(const AttentionShape& s, const void* mask, int64_t at, T* row, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t step = s.mask_stride[3];
  if (s.mask == MaskKind::kBool) {
    const uint8_t* keep = static_cast<const uint8_t*>(mask) + at;
    for (int64_t j = 0; j < n; j++) row[j] = keep[j * step] ? row[j] : T(-HUGE_VALF);
    return;
  }
  const T* add = static_cast<const T*>(mask) + at;
  const auto same = hn::Set(d, add[0]);
  walk(d, n, [&](int64_t j, int64_t count) PIPER_INSIDE {
    const auto m = step == 0 ? same : load_some(d, add + j, count);
    store_some(d, hn::Add(load_some(d, row + j, count), m), row + j, count);
  });
}

// Scores of query rows [first, first + rows) of one head, masked but for the causal part.
template <class T>
void scores(const AttentionShape& s, const QueryBlock& block, const T* q, const T* k_t, const void* mask, T* to) {
  const int64_t width = s.visible(block.first + block.rows - 1);
  tile_gemm(TileGemm<T>{block.rows, round_up(width), s.d, static_cast<T>(s.scale), q + block.first * s.d, s.d, 1, k_t,
                        s.ld, to, s.ld, false});
  if (s.mask == MaskKind::kNone) return;
  for (int64_t r = 0; r < block.rows; r++) {
    const int64_t i = block.first + r;
    apply_mask(s, mask, s.mask_at(block.batch, block.head, i), to + r * s.ld, s.visible(i));
  }
}

// Hides what follows the n visible scores of a row: -infinity to the end of the vectors that hold the n, so that loops
// over them need no tail, and the zeros that the matrix products want after that. Returns the length of the vectors.
template <class T>
int64_t hide_rest(T* row, int64_t n, int64_t width) {
  const int64_t whole = round_up(n);
  for (int64_t j = n; j < whole; j++) row[j] = T(-HUGE_VALF);
  for (int64_t j = whole; j < width; j++) row[j] = T(0);
  return whole;
}

// Turns scores into exp(score - max), 0 after the n visible ones, and returns 1 / sum; 0 where nothing is visible.
template <class T>
T softmax_row(T* row, int64_t n, int64_t width, T* lse) {
  const hn::ScalableTag<T> d;
  const int64_t whole = hide_rest(row, n, width);
  const T top = max_over(d, row, whole);
  // A row of NaN has no largest value either, but is not a masked row: its NaN must reach the loss.
  if (top == T(-HUGE_VALF) && std::none_of(row, row + n, [](T x) { return std::isnan(x); })) {
    std::fill(row, row + whole, T(0));
    if (lse) *lse = 0;
    return 0;
  }
  const auto max = hn::Set(d, top);
  const T sum = sum_over(d, whole, [&](int64_t j, int64_t) PIPER_INSIDE {
    const auto e = exp_low(d, hn::Sub(hn::LoadU(d, row + j), max));
    hn::StoreU(e, d, row + j);
    return e;
  });
  if (lse) *lse = top + std::log(sum);
  return 1 / sum;
}

template <class T>
void forward_block(const AttentionShape& s, const QueryBlock& block, const AttentionForward<T>& t, T* work) {
  const int64_t head = block.batch * s.heads + block.head, group = s.group_of(block);
  scores(s, block, t.q + head * s.rows * s.d, t.k_t + group * s.d * s.ld, t.mask, work);
  const int64_t width = s.visible(block.first + block.rows - 1);
  T inverse[kMaxBlock];
  for (int64_t r = 0; r < block.rows; r++) {
    const int64_t i = block.first + r;
    inverse[r] =
        softmax_row(work + r * s.ld, s.visible(i), round_up(width), t.lse ? t.lse + head * s.rows + i : nullptr);
  }
  T* out = t.out + (head * s.rows + block.first) * s.e;
  tile_gemm(TileGemm<T>{block.rows, s.e, width, T(1), work, s.ld, 1, t.v + group * s.keys * s.e, s.e, out, s.e, false});
  const hn::ScalableTag<T> d;
  for (int64_t r = 0; r < block.rows; r++) {
    T* row = out + r * s.e;
    const auto factor = hn::Set(d, inverse[r]);
    walk(d, s.e, [&](int64_t j, int64_t count) PIPER_INSIDE {
      store_some(d, hn::Mul(load_some(d, row + j, count), factor), row + j, count);
    });
  }
}

// p = exp(score - lse) in place of the scores, ds = p (dp - sum(dout * out)) scale in place of dp.
template <class T>
void backward_row(const AttentionShape& s, T* p, T* ds, int64_t n, int64_t width, T lse, const T* out, const T* dout) {
  const hn::ScalableTag<T> d;
  const auto row = hn::Set(d, sum_over(d, s.e, [&](int64_t j, int64_t count) PIPER_INSIDE {
                             return hn::Mul(load_some(d, out + j, count), load_some(d, dout + j, count));
                           }));
  const auto log_sum = hn::Set(d, lse), scale = hn::Set(d, static_cast<T>(s.scale));
  const int64_t whole = hide_rest(p, n, width);
  walk(d, whole, [&](int64_t j, int64_t) PIPER_INSIDE {
    const auto prob = exp_low(d, hn::Sub(hn::LoadU(d, p + j), log_sum));
    hn::StoreU(prob, d, p + j);
    hn::StoreU(hn::Mul(hn::Mul(prob, scale), hn::Sub(hn::LoadU(d, ds + j), row)), d, ds + j);
  });
  std::fill(ds + whole, ds + width, T(0));
}

template <class T>
void backward_block(const AttentionShape& s, const QueryBlock& block, const AttentionBackward<T>& t, T* work) {
  const int64_t head = block.batch * s.heads + block.head, group = s.group_of(block);
  const int64_t width = s.visible(block.first + block.rows - 1), start = head * s.rows + block.first;
  const T *k_t = work, *v_t = k_t + s.d * s.ld;
  T *p = work + (s.d + s.e) * s.ld, *ds = p + s.block * s.ld;
  const T *q = t.q + start * s.d, *dout = t.dout + start * s.e;
  scores(s, block, t.q + head * s.rows * s.d, k_t, t.mask, p);
  tile_gemm(TileGemm<T>{block.rows, round_up(width), s.e, T(1), dout, s.e, 1, v_t, s.ld, ds, s.ld, false});
  for (int64_t r = 0; r < block.rows; r++) {
    backward_row(s, p + r * s.ld, ds + r * s.ld, s.visible(block.first + r), round_up(width), t.lse[start + r],
                 t.out + (start + r) * s.e, dout + r * s.e);
  }
  const int64_t keys = group * s.keys;
  if (t.dv) tile_gemm(TileGemm<T>{width, s.e, block.rows, T(1), p, 1, s.ld, dout, s.e, t.dv + keys * s.e, s.e, true});
  if (t.dk) tile_gemm(TileGemm<T>{width, s.d, block.rows, T(1), ds, 1, s.ld, q, s.d, t.dk + keys * s.d, s.d, true});
  if (!t.dq) return;
  tile_gemm(
      TileGemm<T>{block.rows, s.d, width, T(1), ds, s.ld, 1, t.k + keys * s.d, s.d, t.dq + start * s.d, s.d, false});
}

// All query heads of key head `group`, in order.
template <class T>
void backward_group(const AttentionShape& s, int64_t group, const AttentionBackward<T>& t, T* work) {
  transpose(t.k + group * s.keys * s.d, s.keys, s.d, work, s.ld);
  transpose(t.v + group * s.keys * s.e, s.keys, s.e, work + s.d * s.ld, s.ld);
  if (t.dk) std::fill_n(t.dk + group * s.keys * s.d, s.keys * s.d, T(0));
  if (t.dv) std::fill_n(t.dv + group * s.keys * s.e, s.keys * s.e, T(0));
  const int64_t shared = s.heads / s.groups;
  for (int64_t h = 0; h < shared; h++) {
    for (int64_t first = 0; first < s.rows; first += s.block) {
      backward_block(s, {group / s.groups, group % s.groups * shared + h, first, std::min(s.block, s.rows - first)}, t,
                     work);
    }
  }
}

void transpose_f32(const float* from, int64_t n, int64_t width, float* to, int64_t ld) {
  transpose(from, n, width, to, ld);
}
void transpose_f64(const double* from, int64_t n, int64_t width, double* to, int64_t ld) {
  transpose(from, n, width, to, ld);
}
void forward_f32(const AttentionShape& s, const QueryBlock& block, const AttentionForward<float>& t, float* work) {
  forward_block(s, block, t, work);
}
void forward_f64(const AttentionShape& s, const QueryBlock& block, const AttentionForward<double>& t, double* work) {
  forward_block(s, block, t, work);
}
void backward_f32(const AttentionShape& s, int64_t group, const AttentionBackward<float>& t, float* work) {
  backward_group(s, group, t, work);
}
void backward_f64(const AttentionShape& s, int64_t group, const AttentionBackward<double>& t, double* work) {
  backward_group(s, group, t, work);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

namespace {

HWY_EXPORT(transpose_f32);
HWY_EXPORT(transpose_f64);
HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

#define PIPER_BY_TYPE(name, ...)                   \
  if constexpr (sizeof(T) == 4) {                  \
    HWY_DYNAMIC_DISPATCH(name##_f32)(__VA_ARGS__); \
  } else {                                         \
    HWY_DYNAMIC_DISPATCH(name##_f64)(__VA_ARGS__); \
  }

template <class T>
class AttentionKernel final : public Kernel {
 public:
  explicit AttentionKernel(const KernelSpec& spec) : s_(spec), threads_(omp_get_max_threads()) {}
  size_t scratch_bytes() const override {
    return static_cast<size_t>(transposed() + threads_ * s_.block * s_.ld) * sizeof(T);
  }

  void run(const void* const* in, void* const* out, const RunContext& context) override {
    T* k_t = static_cast<T*>(context.scratch);
    AttentionForward<T> t{static_cast<const T*>(in[0]), k_t,
                          static_cast<const T*>(in[2]), s_.mask == MaskKind::kNone ? nullptr : in[3],
                          static_cast<T*>(out[0]),      static_cast<T*>(out[1])};
    const T* k = static_cast<const T*>(in[1]);
    const int64_t blocks = (s_.rows + s_.block - 1) / s_.block, tasks = s_.batch * s_.heads * blocks;
#pragma omp parallel num_threads(threads_)
    {
      T* work = k_t + transposed() + omp_get_thread_num() * s_.block * s_.ld;
#pragma omp for schedule(static)
      for (int64_t g = 0; g < s_.batch * s_.groups; g++) {
        PIPER_BY_TYPE(transpose, k + g * s_.keys * s_.d, s_.keys, s_.d, k_t + g * s_.d * s_.ld, s_.ld)
      }
      // Causal blocks differ in work: whoever is free takes the next one.
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < tasks; i++) {
        int64_t head = i / blocks, first = i % blocks * s_.block;
        QueryBlock block{head / s_.heads, head % s_.heads, first, std::min(s_.block, s_.rows - first)};
        PIPER_BY_TYPE(forward, s_, block, t, work)
      }
    }
  }

 private:
  int64_t transposed() const { return s_.batch * s_.groups * s_.d * s_.ld; }
  AttentionShape s_;
  int threads_;
};

template <class T>
class AttentionGradKernel final : public Kernel {
 public:
  explicit AttentionGradKernel(const KernelSpec& spec) : s_(spec), threads_(omp_get_max_threads()) {}
  size_t scratch_bytes() const override { return static_cast<size_t>(threads_ * work_size()) * sizeof(T); }

  void run(const void* const* in, void* const* out, const RunContext& context) override {
    AttentionBackward<T> t{static_cast<const T*>(in[0]), static_cast<const T*>(in[1]),
                           static_cast<const T*>(in[2]), s_.mask == MaskKind::kNone ? nullptr : in[3],
                           static_cast<const T*>(in[4]), static_cast<const T*>(in[5]),
                           static_cast<const T*>(in[6]), static_cast<T*>(out[0]),
                           static_cast<T*>(out[1]),      static_cast<T*>(out[2])};
#pragma omp parallel num_threads(threads_)
    {
      T* work = static_cast<T*>(context.scratch) + omp_get_thread_num() * work_size();
#pragma omp for schedule(dynamic)
      for (int64_t g = 0; g < s_.batch * s_.groups; g++) {
        PIPER_BY_TYPE(backward, s_, g, t, work)
      }
    }
  }

 private:
  int64_t work_size() const { return (s_.d + s_.e + 2 * s_.block) * s_.ld; }
  AttentionShape s_;
  int threads_;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_Attention(const KernelSpec& spec) { return make_float_kernel<AttentionKernel>(spec); }
std::unique_ptr<Kernel> make_cpu_AttentionGrad(const KernelSpec& spec) {
  return make_float_kernel<AttentionGradKernel>(spec);
}

}  // namespace piper::ops
#endif  // HWY_ONCE
