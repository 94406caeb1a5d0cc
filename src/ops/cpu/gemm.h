// Matrix products of the CPU kernels: C = alpha * op(A) op(B) (+ bias) (+ C), batched, made once for given shapes.
// f32 goes to oneDNN, f64 (tests and checks) to a plain loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/types.h"

namespace piper::ops {

struct GemmSpec {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false;  // A is stored [K, M]
  bool trans_b = false;  // B is stored [N, K]
  double alpha = 1;      // not with a bias
  bool bias = false;     // bias[N] is added to every row
  bool accumulate = false;
  // Leading dims of C, and those of A and B: as many, each equal to C's or 1.
  std::vector<int64_t> batch_a = {}, batch_b = {}, batch = {};
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t scratch_bytes() const = 0;
  // `bias` is nullptr without one; `scratch` has scratch_bytes() bytes, 64-byte aligned. One run at a time.
  virtual void run(const void* a, const void* b, const void* bias, void* c, void* scratch) = 0;
};

// nullptr for a type that is neither f32 nor f64.
std::unique_ptr<Gemm> make_gemm(ir::DType dtype, const GemmSpec& spec);

}  // namespace piper::ops
