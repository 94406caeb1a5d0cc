// Rotary positions on the CPU, a row of the last dim at a time.

#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_SSSE3)  // no different for floats
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rotary/rotary_cpu.cpp"
#include "hwy/foreach_target.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/vector-inl.h"

#ifndef PIPER_OPS_ROTARY_ARGS
#define PIPER_OPS_ROTARY_ARGS
namespace piper::ops {
constexpr int kMaxRotaryDims = 8;
template <class T>
struct RotaryArgs {
  int64_t half;  // pairs in a row
  bool interleaved, inverse;
  int dims;                        // leading dims of x
  int64_t size[kMaxRotaryDims];    // of x
  int64_t stride[kMaxRotaryDims];  // of cos and sin in rows; 0 where they broadcast
  const T *x, *cos, *sin;
  T* y;

  // The row of cos and sin for a row of x.
  int64_t angle_row(int64_t row) const {
    int64_t at = 0;
    for (int i = dims; i-- > 0;) {
      at += row % size[i] * stride[i];
      row /= size[i];
    }
    return at;
  }
};
}  // namespace piper::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace piper::ops {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void turn_halves(const T* x, const T* cos, const T* sin, T sign, T* y, int64_t half) {
  const hn::ScalableTag<T> d;
  const auto flip = hn::Set(d, sign);
  walk(d, half, [&](int64_t i, int64_t count) PIPER_INSIDE {
    const auto c = load_some(d, cos + i, count), s = hn::Mul(load_some(d, sin + i, count), flip);
    const auto x1 = load_some(d, x + i, count), x2 = load_some(d, x + half + i, count);
    store_some(d, hn::NegMulAdd(x2, s, hn::Mul(x1, c)), y + i, count);
    store_some(d, hn::MulAdd(x1, s, hn::Mul(x2, c)), y + half + i, count);
  });
}

template <class T>
void turn_neighbours(const T* x, const T* cos, const T* sin, T sign, T* y, int64_t half) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto flip = hn::Set(d, sign);
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto c = hn::LoadU(d, cos + i), s = hn::Mul(hn::LoadU(d, sin + i), flip);
    auto x1 = c, x2 = c;
    hn::LoadInterleaved2(d, x + 2 * i, x1, x2);
    hn::StoreInterleaved2(hn::NegMulAdd(x2, s, hn::Mul(x1, c)), hn::MulAdd(x1, s, hn::Mul(x2, c)), d, y + 2 * i);
  }
  for (; i < half; i++) {
    const T c = cos[i], s = sin[i] * sign, x1 = x[2 * i], x2 = x[2 * i + 1];
    y[2 * i] = x1 * c - x2 * s;
    y[2 * i + 1] = x2 * c + x1 * s;
  }
}

template <class T>
void rows(const RotaryArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const int64_t at = a.angle_row(r) * a.half, from = r * 2 * a.half;
    const T sign = a.inverse ? T(-1) : T(1);
    if (a.interleaved) {
      turn_neighbours(a.x + from, a.cos + at, a.sin + at, sign, a.y + from, a.half);
    } else {
      turn_halves(a.x + from, a.cos + at, a.sin + at, sign, a.y + from, a.half);
    }
  }
}

void rotary_f32(const RotaryArgs<float>& a, int64_t begin, int64_t end) { rows(a, begin, end); }
void rotary_f64(const RotaryArgs<double>& a, int64_t begin, int64_t end) { rows(a, begin, end); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace piper::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace piper::ops {

namespace {

HWY_EXPORT(rotary_f32);
HWY_EXPORT(rotary_f64);

void rotary(const RotaryArgs<float>& a, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(rotary_f32)(a, begin, end); }
void rotary(const RotaryArgs<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rotary_f64)(a, begin, end);
}

template <class T>
class RotaryKernel final : public Kernel {
 public:
  explicit RotaryKernel(const KernelSpec& spec) {
    const std::vector<int64_t>& x = spec.inputs[0].shape;
    const std::vector<int64_t>& angle = spec.inputs[1].shape;
    args_.half = x.back() / 2;
    args_.interleaved = spec.attrs.i("interleaved") != 0;
    args_.inverse = spec.attrs.i("inverse") != 0;
    args_.dims = static_cast<int>(x.size()) - 1;
    int64_t step = 1;
    for (int i = args_.dims; i-- > 0;) {
      // Dims are aligned at the end; the ones that cos lacks broadcast.
      int64_t j = i - static_cast<int64_t>(x.size() - angle.size());
      int64_t size = j < 0 ? 1 : angle[static_cast<size_t>(j)];
      args_.size[i] = x[static_cast<size_t>(i)];
      args_.stride[i] = size == 1 ? 0 : step;
      step *= size;
      rows_ *= args_.size[i];
    }
  }
  void run(const void* const* in, void* const* out, const RunContext&) override {
    RotaryArgs<T> a = args_;
    a.x = static_cast<const T*>(in[0]);
    a.cos = static_cast<const T*>(in[1]);
    a.sin = static_cast<const T*>(in[2]);
    a.y = static_cast<T*>(out[0]);
    parallel_ranges(rows_, 2 * a.half, [&](int64_t begin, int64_t end) { rotary(a, begin, end); });
  }

 private:
  int64_t rows_ = 1;
  RotaryArgs<T> args_{};
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_Rotary(const KernelSpec& spec) {
  if (spec.inputs[0].shape.size() > kMaxRotaryDims) return nullptr;
  return make_float_kernel<RotaryKernel>(spec);
}

}  // namespace piper::ops
#endif  // HWY_ONCE
