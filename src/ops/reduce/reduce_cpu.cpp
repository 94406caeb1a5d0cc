// Reductions over a shape folded into alternating kept and reduced dims. Where the last dim is reduced, rows are folded
// one by one; where it is kept, rows are added to a block of results. Sums of many rows go through partial sums of
// kSumBlock rows: the error grows with the logarithm, and the order never depends on the number of threads.

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector_math.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

constexpr int64_t kSumBlock = 64;   // rows
constexpr int64_t kColumns = 256;   // results a task holds while it adds rows

// The dims of one kind (kept or reduced), outermost first, as a counter over offsets.
struct Dims {
  std::vector<int64_t> sizes, strides;
  int64_t count() const { return ir::num_elements(sizes); }
  int64_t offset(int64_t index) const {
    int64_t at = 0;
    for (size_t i = sizes.size(); i-- > 0;) {
      at += index % sizes[i] * strides[i];
      index /= sizes[i];
    }
    return at;
  }
};

struct Plan {
  Dims kept, reduced;          // without the innermost run
  int64_t run = 1;             // elements of the innermost dim
  bool run_reduced = false;
  int64_t inputs_per_result = 1;
  bool accumulate = false;
};

Plan plan_of(const KernelSpec& spec) {
  const std::vector<int64_t>& shape = spec.inputs[0].shape;
  const std::vector<int64_t> axes = spec.attrs.ints("axes");
  Plan plan;
  plan.accumulate = spec.attrs.i("accumulate", 0) & 1;
  std::vector<std::pair<int64_t, bool>> folded;  // size, reduced; innermost first
  for (size_t i = shape.size(); i-- > 0;) {
    const bool reduced = std::count(axes.begin(), axes.end(), static_cast<int64_t>(i)) > 0;
    if (reduced) plan.inputs_per_result *= shape[i];
    if (shape[i] == 1) continue;
    if (!folded.empty() && folded.back().second == reduced) {
      folded.back().first *= shape[i];
    } else {
      folded.push_back({shape[i], reduced});
    }
  }
  int64_t stride = 1;
  for (size_t i = 0; i < folded.size(); i++) {
    const auto [size, reduced] = folded[i];
    if (i == 0) {
      plan.run = size;
      plan.run_reduced = reduced;
    } else {
      Dims& dims = reduced ? plan.reduced : plan.kept;
      dims.sizes.insert(dims.sizes.begin(), size);
      dims.strides.insert(dims.strides.begin(), stride);
    }
    stride *= size;
  }
  return plan;
}

template <class T>
struct Sum {
  static constexpr T kStart = T(0);
  static T one(T a, T b) { return static_cast<T>(a + b); }
  static T row(const T* x, int64_t n) {
    if constexpr (std::is_same_v<T, float>) return vec::sum(x, n);
    T total = kStart;
    for (int64_t i = 0; i < n; i++) total = one(total, x[i]);
    return total;
  }
  static void rows(T* y, const T* x, int64_t n) {
    if constexpr (std::is_same_v<T, float>) return vec::add_to(y, x, n);
    for (int64_t i = 0; i < n; i++) y[i] = one(y[i], x[i]);
  }
};

template <class T, bool kLargest>
struct Extremum {
  static constexpr T kStart = std::numeric_limits<T>::has_infinity
                                  ? (kLargest ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity())
                                  : (kLargest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max());
  static T one(T a, T b) { return a != a || (kLargest ? a > b : a < b) ? a : b; }
  static T row(const T* x, int64_t n) {
    if constexpr (std::is_same_v<T, float>) return kLargest ? vec::max(x, n) : vec::min(x, n);
    T best = kStart;
    for (int64_t i = 0; i < n; i++) best = one(best, x[i]);
    return best;
  }
  static void rows(T* y, const T* x, int64_t n) {
    if constexpr (std::is_same_v<T, float>) {
      return vec::binary(kLargest ? vec::Binary::kMax : vec::Binary::kMin, y, 1, x, 1, y, n);
    }
    for (int64_t i = 0; i < n; i++) y[i] = one(y[i], x[i]);
  }
};

template <class T, class Fold>
class Reduce final : public Kernel {
 public:
  Reduce(const KernelSpec& spec, bool mean) : plan_(plan_of(spec)), mean_(mean) {}

  void run(const void* const* in, void* const* out, const RunContext&) override {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    plan_.run_reduced ? fold_rows(x, y) : add_rows(x, y);
  }

 private:
  void store(T* y, T value) const {
    const int64_t count = std::is_integral_v<T> ? std::max<int64_t>(1, plan_.inputs_per_result) : plan_.inputs_per_result;
    if (mean_) value = static_cast<T>(value / static_cast<T>(count));
    *y = plan_.accumulate ? static_cast<T>(*y + value) : value;
  }

  void fold_rows(const T* x, T* y) const {
    const int64_t outer = plan_.reduced.count();
    parallel_rows(plan_.kept.count(), outer * plan_.run, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; k++) {
        const T* from = x + plan_.kept.offset(k);
        T total = Fold::kStart;
        for (int64_t r = 0; r < outer; r += kSumBlock) {
          T part = Fold::kStart;
          for (int64_t s = r; s < std::min(outer, r + kSumBlock); s++) part = Fold::one(part, row(from, s));
          total = Fold::one(total, part);
        }
        store(y + k, total);
      }
    });
  }

  // Long rows in pieces, for the same reason as blocks of rows.
  T row(const T* from, int64_t r) const {
    constexpr int64_t kPiece = 4096;
    const T* x = from + plan_.reduced.offset(r);
    T total = Fold::kStart;
    for (int64_t i = 0; i < plan_.run; i += kPiece) total = Fold::one(total, Fold::row(x + i, std::min(kPiece, plan_.run - i)));
    return total;
  }

  void add_rows(const T* x, T* y) const {
    const int64_t outer = plan_.reduced.count();
    const int64_t blocks = (plan_.run + kColumns - 1) / kColumns;
    parallel_rows(plan_.kept.count() * blocks, outer * std::min(plan_.run, kColumns), [&](int64_t begin, int64_t end) {
      T total[kColumns], part[kColumns];
      for (int64_t task = begin; task < end; task++) {
        const int64_t k = task / blocks, column = task % blocks * kColumns;
        const int64_t width = std::min(kColumns, plan_.run - column);
        const T* from = x + plan_.kept.offset(k) + column;
        std::fill_n(total, width, Fold::kStart);
        for (int64_t r = 0; r < outer; r += kSumBlock) {
          std::fill_n(part, width, Fold::kStart);
          for (int64_t s = r; s < std::min(outer, r + kSumBlock); s++) Fold::rows(part, from + plan_.reduced.offset(s), width);
          Fold::rows(total, part, width);
        }
        for (int64_t i = 0; i < width; i++) store(y + k * plan_.run + column + i, total[i]);
      }
    });
  }

  Plan plan_;
  bool mean_;
};

template <template <class> class Fold>
std::unique_ptr<Kernel> make_reduce(const KernelSpec& spec, bool mean) {
  return visit_dtype(spec.inputs[0].dtype, [&](auto tag) -> std::unique_ptr<Kernel> {
    using T = tag_type<decltype(tag)>;
    if constexpr (std::is_same_v<T, bool>) {
      return nullptr;
    } else {
      return std::make_unique<Reduce<T, Fold<T>>>(spec, mean);
    }
  });
}

template <class T>
using Largest = Extremum<T, true>;
template <class T>
using Smallest = Extremum<T, false>;

}  // namespace

std::unique_ptr<Kernel> make_cpu_ReduceMax(const KernelSpec& spec) { return make_reduce<Largest>(spec, false); }
std::unique_ptr<Kernel> make_cpu_ReduceMin(const KernelSpec& spec) { return make_reduce<Smallest>(spec, false); }
std::unique_ptr<Kernel> make_cpu_ReduceMean(const KernelSpec& spec) { return make_reduce<Sum>(spec, true); }
std::unique_ptr<Kernel> make_cpu_ReduceSum(const KernelSpec& spec) { return make_reduce<Sum>(spec, false); }

}  // namespace piper::ops
