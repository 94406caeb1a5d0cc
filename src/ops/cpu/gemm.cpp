// oneDNN has two ways to multiply f32 matrices and neither is always best (one core of a Zen 5, GFLOP/s of a peak of
// about 260): with B transposed the matmul primitive, which packs B, has 230-255 against 165-240 of sgemm; with B as
// it is the primitive falls to 150-210 for large B where sgemm stays at 245-260. Hence `use_sgemm` below.

#include "ops/cpu/gemm.h"

#include <algorithm>
#include <string>

#include "ops/cpu/onednn.h"
#include "support/error.h"

namespace piper::ops {

namespace {

int64_t product(const std::vector<int64_t>& dims) {
  int64_t p = 1;
  for (int64_t d : dims) p *= d;
  return p;
}

// Writes what a product over no elements gives: the bias or zeros.
template <class T>
void fill_rows(T* c, int64_t rows, int64_t n, const T* bias) {
#pragma omp parallel for schedule(static) if (rows * n > 65536)
  for (int64_t i = 0; i < rows; i++) {
    if (bias) {
      std::copy(bias, bias + n, c + i * n);
    } else {
      std::fill(c + i * n, c + (i + 1) * n, T(0));
    }
  }
}

class EmptyGemm final : public Gemm {
 public:
  EmptyGemm(ir::DType dtype, const GemmSpec& spec) : dtype_(dtype), spec_(spec) {}
  size_t scratch_bytes() const override { return 0; }
  void run(const void*, const void*, const void* bias, void* c, void*) override {
    int64_t rows = product(spec_.batch) * spec_.m;
    if (dtype_ == ir::DType::kF32) write(static_cast<float*>(c), static_cast<const float*>(bias), rows);
    if (dtype_ == ir::DType::kF64) write(static_cast<double*>(c), static_cast<const double*>(bias), rows);
  }

 private:
  template <class T>
  void write(T* c, const T* bias, int64_t rows) {
    if (!spec_.accumulate) return fill_rows(c, rows, spec_.n, bias);
    for (int64_t i = 0; bias && i < rows * spec_.n; i++) c[i] += bias[i % spec_.n];
  }
  ir::DType dtype_;
  GemmSpec spec_;
};

class SgemmGemm final : public Gemm {
 public:
  explicit SgemmGemm(const GemmSpec& spec) : spec_(spec) {}
  size_t scratch_bytes() const override { return 0; }
  void run(const void* a, const void* b, const void* bias, void* c, void*) override {
    const GemmSpec& s = spec_;
    if (bias) fill_rows(static_cast<float*>(c), s.m, s.n, static_cast<const float*>(bias));
    float beta = s.accumulate || bias ? 1.0f : 0.0f;
    dnnl_status_t status =
        dnnl_sgemm(s.trans_a ? 'T' : 'N', s.trans_b ? 'T' : 'N', s.m, s.n, s.k, static_cast<float>(s.alpha),
                   static_cast<const float*>(a), s.trans_a ? s.m : s.k, static_cast<const float*>(b),
                   s.trans_b ? s.k : s.n, beta, static_cast<float*>(c), s.n);
    PIPER_CHECK(status == dnnl_success, "dnnl_sgemm failed");
  }

 private:
  GemmSpec spec_;
};

// Dims and strides of a dense batch of matrices; stored the other way round when `transposed`.
dnnl::memory::desc matrix_desc(const std::vector<int64_t>& batch, int64_t rows, int64_t cols, bool transposed) {
  dnnl::memory::dims dims(batch.begin(), batch.end());
  dims.push_back(rows);
  dims.push_back(cols);
  dnnl::memory::dims strides(dims.size());
  size_t r = dims.size() - 2;
  strides[r] = transposed ? 1 : cols;
  strides[r + 1] = transposed ? rows : 1;
  int64_t step = rows * cols;
  for (size_t i = r; i-- > 0;) {
    strides[i] = step;
    step *= dims[i];
  }
  return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, strides);
}

class PrimitiveGemm final : public Gemm {
 public:
  explicit PrimitiveGemm(const GemmSpec& s) : stream_(cpu_engine()) {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops post;
    if (s.alpha != 1) post.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, static_cast<float>(s.alpha), 0.0f);
    if (s.accumulate) post.append_sum(1.0f);
    attr.set_post_ops(post);
    dnnl::memory::desc a = matrix_desc(s.batch_a, s.m, s.k, s.trans_a);
    dnnl::memory::desc b = matrix_desc(s.batch_b, s.k, s.n, s.trans_b);
    dnnl::memory::desc c = matrix_desc(s.batch, s.m, s.n, false);
    dnnl::memory::desc bias = matrix_desc(std::vector<int64_t>(s.batch.size(), 1), 1, s.n, false);
    dnnl::matmul::desc desc = s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    dnnl::matmul::primitive_desc pd(desc, attr, cpu_engine());
    matmul_ = dnnl::matmul(pd);
    scratch_bytes_ = pd.scratchpad_desc().get_size();
    add(DNNL_ARG_SRC, a);
    add(DNNL_ARG_WEIGHTS, b);
    add(DNNL_ARG_DST, c);
    add(DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc());
    if (s.bias) add(DNNL_ARG_BIAS, bias);
    for (size_t i = 0; i < memory_.size(); i++) args_[i].memory = memory_[i].get();
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch) override {
    void* data[] = {const_cast<void*>(a), const_cast<void*>(b), c, scratch, const_cast<void*>(bias)};
    int n = static_cast<int>(memory_.size());
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < n && status == dnnl_success; i++) {
      status = dnnl_memory_set_data_handle(args_[i].memory, data[i]);
    }
    // The C interface takes the arguments as they are; the C++ one copies a map for every call.
    if (status == dnnl_success) status = dnnl_primitive_execute(matmul_.get(), stream_.get(), n, args_);
    PIPER_CHECK(status == dnnl_success, "a oneDNN matmul failed");
  }

 private:
  void add(int arg, const dnnl::memory::desc& desc) {
    args_[memory_.size()].arg = arg;
    memory_.emplace_back(desc, cpu_engine(), static_cast<void*>(nullptr));
  }
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  size_t scratch_bytes_ = 0;
  std::vector<dnnl::memory> memory_;
  dnnl_exec_arg_t args_[5] = {};
};

// Rows of C are independent and every element adds over k in order: the result does not depend on threads.
class PlainGemm final : public Gemm {
 public:
  explicit PlainGemm(const GemmSpec& spec) : s_(spec) {}
  size_t scratch_bytes() const override { return 0; }
  void run(const void* a, const void* b, const void* bias, void* c, void*) override {
    int64_t batch = product(s_.batch);
#pragma omp parallel for collapse(2) schedule(static) if (batch * s_.m * s_.n * s_.k > 65536)
    for (int64_t p = 0; p < batch; p++) {
      for (int64_t i = 0; i < s_.m; i++) {
        row(static_cast<const double*>(a) + offset(p, s_.batch_a) * s_.m * s_.k, i,
            static_cast<const double*>(b) + offset(p, s_.batch_b) * s_.k * s_.n, static_cast<const double*>(bias),
            static_cast<double*>(c) + (p * s_.m + i) * s_.n);
      }
    }
  }

 private:
  // The matrix of an operand whose batch dims are `dims` that belongs to matrix p of C.
  int64_t offset(int64_t p, const std::vector<int64_t>& dims) const {
    int64_t index = 0, step = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      int64_t coordinate = p % s_.batch[i];
      p /= s_.batch[i];
      if (dims[i] > 1) index += coordinate * step;
      step *= dims[i];
    }
    return index;
  }

  void row(const double* a, int64_t i, const double* b, const double* bias, double* c) const {
    constexpr int64_t kBlock = 128;
    const int64_t step_a = s_.trans_a ? s_.m : 1;
    a += s_.trans_a ? i : i * s_.k;
    for (int64_t j0 = 0; j0 < s_.n; j0 += kBlock) {
      double sum[kBlock] = {};
      int64_t width = std::min(kBlock, s_.n - j0);
      for (int64_t k = 0; k < s_.k; k++) {
        double x = a[k * step_a];
        for (int64_t j = 0; j < width; j++) sum[j] += x * (s_.trans_b ? b[(j0 + j) * s_.k + k] : b[k * s_.n + j0 + j]);
      }
      for (int64_t j = 0; j < width; j++) {
        double value = s_.alpha * sum[j] + (bias ? bias[j0 + j] : 0);
        c[j0 + j] = s_.accumulate ? c[j0 + j] + value : value;
      }
    }
  }
  GemmSpec s_;
};

bool use_sgemm(const GemmSpec& s) {
  if (product(s.batch) != 1 || s.trans_b) return false;
  // A bias costs sgemm a pass over C, which only a large product hides.
  return !s.bias || (s.k >= 256 && s.k * s.n >= (1 << 19));
}

}  // namespace

std::unique_ptr<Gemm> make_gemm(ir::DType dtype, const GemmSpec& spec) {
  PIPER_CHECK(spec.batch_a.size() == spec.batch.size() && spec.batch_b.size() == spec.batch.size(),
              "operands of a batched product have different ranks");
  PIPER_CHECK(!spec.bias || (spec.alpha == 1 && !spec.accumulate), "a bias goes with neither alpha nor accumulate");
  if (dtype != ir::DType::kF32 && dtype != ir::DType::kF64) return nullptr;
  if (product(spec.batch) * spec.m * spec.n * spec.k == 0) return std::make_unique<EmptyGemm>(dtype, spec);
  if (dtype == ir::DType::kF64) return std::make_unique<PlainGemm>(spec);
  if (use_sgemm(spec)) return std::make_unique<SgemmGemm>(spec);
  try {
    return std::make_unique<PrimitiveGemm>(spec);
  } catch (const dnnl::error& error) {
    PIPER_CHECK(false, std::string("oneDNN makes no matmul of these shapes: ") + error.what());
  }
}

}  // namespace piper::ops
