// One product per expert and block of rows, of as many rows as it has in this run: f32 by oneDNN's sgemm, which takes
// sizes when it runs, f64 by a plain loop.

#include <algorithm>

#include "ops/cpu/copy.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/float_kernel.h"
#include "ops/cpu/onednn.h"
#include "ops/kernel.h"
#include "support/error.h"

namespace piper::ops {

namespace {

// c[m,n] (+)= op(a) op(b), all dense; a is stored [k,m] and b [n,k] where transposed.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false, add = false;
};

void multiply(const Product& p, const float* a, const float* b, float* c) {
  const dnnl_status_t status = dnnl_sgemm(p.trans_a ? 'T' : 'N', p.trans_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f, a,
                                          p.trans_a ? p.m : p.k, b, p.trans_b ? p.k : p.n, p.add ? 1.0f : 0.0f, c, p.n);
  PIPER_CHECK(status == dnnl_success, "dnnl_sgemm failed");
}

void multiply(const Product& p, const double* a, const double* b, double* c) {
  for (int64_t i = 0; i < p.m; i++) {
    for (int64_t j = 0; j < p.n; j++) {
      double sum = 0;
      for (int64_t k = 0; k < p.k; k++) {
        sum += a[p.trans_a ? k * p.m + i : i * p.k + k] * b[p.trans_b ? j * p.k + k : k * p.n + j];
      }
      c[i * p.n + j] = p.add ? c[i * p.n + j] + sum : sum;
    }
  }
}

// Blocks of rows, one after another, and the experts' shares of them.
struct Blocks {
  int64_t blocks = 1, experts = 0, rows = 0;  // rows of all blocks

  Blocks(const std::vector<int64_t>& counts, int64_t all_rows) : experts(counts.back()), rows(all_rows) {
    if (counts.size() == 2) blocks = counts[0];
  }

  // fn(expert, first row, number of rows) for each share, by block and then expert; rest(first row, number of rows) for
  // what follows the last one. Counts beyond the rows are cut off.
  template <class Fn, class Rest>
  void each(const void* counts, const Fn& fn, const Rest& rest) const {
    const int64_t* count = static_cast<const int64_t*>(counts);
    int64_t at = 0;
    for (int64_t i = 0; i < blocks * experts; i++) {
      const int64_t n = std::clamp<int64_t>(count[i], 0, rows - at);
      if (n > 0) fn(i % experts, at, n);
      at += n;
    }
    if (at < rows) rest(at, rows - at);
  }
};

void ignore(int64_t, int64_t) {}

}  // namespace

std::unique_ptr<Kernel> make_cpu_GroupedLinear(const KernelSpec& spec) {
  const Blocks blocks(spec.inputs[2].shape, spec.inputs[0].shape[0]);
  const int64_t k = spec.inputs[0].shape[1], m = spec.outputs[0].shape[1];
  const bool trans = spec.attrs.i("trans_w") != 0, biased = has_input(spec, 3);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T *x = static_cast<const T*>(in[0]), *w = static_cast<const T*>(in[1]);
      T* y = static_cast<T*>(out[0]);
      const auto share = [&](int64_t e, int64_t first, int64_t n) {
        T* to = y + first * m;
        if (biased) {
          const T* bias = static_cast<const T*>(in[3]) + e * m;
          parallel_rows(n, m, [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; r++) std::copy_n(bias, m, to + r * m);
          });
        }
        multiply({n, m, k, false, trans, biased}, x + first * k, w + e * k * m, to);
      };
      blocks.each(in[2], share, [&](int64_t first, int64_t n) {
        zero_bytes(y + first * m, n * m * static_cast<int64_t>(sizeof(T)));
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_GroupedLinearGradWeight(const KernelSpec& spec) {
  const Blocks blocks(spec.inputs[2].shape, spec.inputs[0].shape[0]);
  const int64_t k = spec.inputs[0].shape[1], m = spec.inputs[1].shape[1];
  const bool trans = spec.attrs.i("trans_w") != 0, accumulate = spec.attrs.i("accumulate") & 1;
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T *x = static_cast<const T*>(in[0]), *dy = static_cast<const T*>(in[1]);
      T* dw = static_cast<T*>(out[0]);
      if (!accumulate) zero_bytes(dw, blocks.experts * k * m * static_cast<int64_t>(sizeof(T)));
      const auto share = [&](int64_t e, int64_t first, int64_t n) {
        T* to = dw + e * k * m;
        if (trans)
          multiply({m, k, n, true, false, true}, dy + first * m, x + first * k, to);
        else
          multiply({k, m, n, true, false, true}, x + first * k, dy + first * m, to);
      };
      blocks.each(in[2], share, ignore);
    });
  });
}

std::unique_ptr<Kernel> make_cpu_GroupedLinearGradBias(const KernelSpec& spec) {
  const Blocks blocks(spec.inputs[1].shape, spec.inputs[0].shape[0]);
  const int64_t m = spec.inputs[0].shape[1];
  const bool accumulate = spec.attrs.i("accumulate") & 1;
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* dy = static_cast<const T*>(in[0]);
      T* db = static_cast<T*>(out[0]);
      if (!accumulate) std::fill_n(db, blocks.experts * m, T(0));
      const auto share = [&](int64_t e, int64_t first, int64_t n) {
        // Each thread its own columns, added over the rows in order.
        parallel_pieces(m, std::max<int64_t>(16, kGrain / n), [&](int64_t begin, int64_t end) {
          for (int64_t r = first; r < first + n; r++) {
            for (int64_t j = begin; j < end; j++) db[e * m + j] += dy[r * m + j];
          }
        });
      };
      blocks.each(in[1], share, ignore);
    });
  });
}

}  // namespace piper::ops
