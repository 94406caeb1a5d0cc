// f32 loops over runs of memory, vectorised for the processor they run on (Highway picks the instruction set at run
// time). Kernels cut their work into pieces (parallel.h) and call these on each. Results depend on values and lengths
// only up to the instruction set: one machine gives the same bits for any cut.
// A kernel that fuses several of these functions is its own Highway file: include vector_math-inl.h there.
#pragma once

#include <cstdint>
#include <string_view>

namespace piper::ops::vec {

enum class Unary {
  kAbs, kCeil, kCos, kErf, kExp, kFloor, kGelu, kGeluTanh, kLog, kNeg, kReciprocal, kRelu, kRound, kSigmoid, kSilu, kSin,
  kSoftplus, kSqrt, kTanh,
};

// The function of a unary op of ops.def ("Gelu" with approximate "tanh" is kGeluTanh); false when there is none.
bool parse_unary(std::string_view op, std::string_view approximate, Unary* out);

// y = f(x)
void unary(Unary f, const float* x, float* y, int64_t n);
// dx = f'(.) * dy, from what grad_reads_output(f) says: the output of f or its input.
void unary_grad(Unary f, const float* saved, const float* dy, float* dx, int64_t n);
bool grad_reads_output(Unary f);

inline void exp(const float* x, float* y, int64_t n) { unary(Unary::kExp, x, y, n); }
inline void log(const float* x, float* y, int64_t n) { unary(Unary::kLog, x, y, n); }
inline void tanh(const float* x, float* y, int64_t n) { unary(Unary::kTanh, x, y, n); }
inline void erf(const float* x, float* y, int64_t n) { unary(Unary::kErf, x, y, n); }
inline void sigmoid(const float* x, float* y, int64_t n) { unary(Unary::kSigmoid, x, y, n); }

enum class Binary { kAdd, kSub, kMul, kDiv, kMax, kMin };
// y = a op b. A stride of 0 repeats the first element, 1 walks. y may be a or b.
void binary(Binary f, const float* a, int64_t stride_a, const float* b, int64_t stride_b, float* y, int64_t n);

// y += x
inline void add_to(float* y, const float* x, int64_t n) { binary(Binary::kAdd, y, 1, x, 1, y, n); }
// y += scale * x
void add_scaled(float* y, const float* x, float scale, int64_t n);
// Sum in a fixed order (partial sums in vector lanes).
float sum(const float* x, int64_t n);
float max(const float* x, int64_t n);  // -inf for none; NaN when one is
float min(const float* x, int64_t n);
// y = exp(x - shift); returns the sum of y.
float exp_shifted(const float* x, float shift, float* y, int64_t n);
// The words of `blocks` consecutive Philox blocks of a sample, as PhiloxStream::block gives them: 4 a block.
void philox_words(uint64_t key, uint64_t sample, uint64_t first_block, int64_t blocks, uint32_t* words);

}  // namespace piper::ops::vec
