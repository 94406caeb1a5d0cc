// Tokens to rows and back. Every element is written by one thread and summed over the choices in order, so that results
// do not depend on the number of threads.

#include <algorithm>
#include <vector>

#include "ops/cpu/copy.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/float_kernel.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

template <class Index>
class Route final : public Kernel {
 public:
  explicit Route(const KernelSpec& spec)
      : experts_(spec.attrs.i("experts")),
        capacity_(spec.attrs.i("capacity")),
        choices_first_(spec.attrs.i("choices_first") != 0),
        padded_(spec.attrs.i("padded")) {
    const std::vector<int64_t>& shape = spec.inputs[0].shape;
    choices_ = shape.back();
    tokens_ = shape[shape.size() - 2];
    groups_ = 1;
    for (size_t i = 0; i + 2 < shape.size(); i++) groups_ *= shape[i];
    if (padded_ != 0 && capacity_ == 0) capacity_ = tokens_;
    taken_.resize(static_cast<size_t>(experts_));
    counted_ = ir::num_elements(spec.outputs[1].shape);
  }

  void run(const void* const* in, void* const* out, const RunContext&) override {
    const Index* expert = static_cast<const Index*>(in[0]);
    int64_t* slot = static_cast<int64_t*>(out[0]);
    int64_t* counts = static_cast<int64_t*>(out[1]);
    std::fill_n(counts, counted_, 0);
    for (int64_t g = 0; g < groups_; g++) take(g, expert, slot, counts);
    if (padded_ != 0) return;
    // From "taken" to a place among the rows.
    int64_t first = 0;
    for (int64_t e = 0; e < experts_; e++) {
      taken_[static_cast<size_t>(e)] = first;
      first += counts[e];
    }
    for (int64_t i = 0; i < groups_ * tokens_ * choices_; i++) {
      if (slot[i] >= 0) slot[i] = taken_[static_cast<size_t>(expert[i])]++;
    }
  }

 private:
  // Gives the pairs of a group to their experts, in order of precedence.
  void take(int64_t g, const Index* expert, int64_t* slot, int64_t* counts) {
    std::fill(taken_.begin(), taken_.end(), 0);
    const int64_t outer = choices_first_ ? choices_ : tokens_, inner = choices_first_ ? tokens_ : choices_;
    for (int64_t a = 0; a < outer; a++) {
      for (int64_t b = 0; b < inner; b++) {
        const int64_t i = g * tokens_ * choices_ + (choices_first_ ? b * choices_ + a : a * choices_ + b);
        const int64_t e = expert[i];
        slot[i] = -1;
        if (e < 0 || e >= experts_) continue;
        int64_t& taken = taken_[static_cast<size_t>(e)];
        if (capacity_ > 0 && taken == capacity_) continue;
        slot[i] = (padded_ == 2 ? g * experts_ + e : e * groups_ + g) * capacity_ + taken++;
        counts[e]++;
      }
    }
  }

  int64_t experts_, capacity_, choices_ = 0, tokens_ = 0, groups_ = 0;
  int64_t counted_ = 0;  // the experts, and zeros
  bool choices_first_;
  int64_t padded_;
  std::vector<int64_t> taken_;
};

// Tokens, their choices, and rows.
struct Sizes {
  int64_t tokens = 0, choices = 0, width = 0, rows = 0;

  Sizes(const std::vector<int64_t>& slot, const std::vector<int64_t>& rows_shape)
      : choices(slot.back()), width(rows_shape[1]), rows(rows_shape[0]) {
    tokens = ir::num_elements(std::vector<int64_t>(slot.begin(), slot.end() - 1));
  }
  // The row of a pair, nullptr when it has none.
  template <class T>
  T* row(T* all, int64_t slot) const {
    return slot < 0 || slot >= rows ? nullptr : all + slot * width;
  }
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_MoERoute(const KernelSpec& spec) {
  if (spec.inputs[0].dtype == ir::DType::kI64) return std::make_unique<Route<int64_t>>(spec);
  if (spec.inputs[0].dtype == ir::DType::kI32) return std::make_unique<Route<int32_t>>(spec);
  return nullptr;
}

std::unique_ptr<Kernel> make_cpu_MoEDispatch(const KernelSpec& spec) {
  const Sizes s(spec.inputs[1].shape, spec.outputs[0].shape);
  const bool gated = has_input(spec, 2);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* x = static_cast<const T*>(in[0]);
      const int64_t* slot = static_cast<const int64_t*>(in[1]);
      const T* gates = gated ? static_cast<const T*>(in[2]) : nullptr;
      T* rows = static_cast<T*>(out[0]);
      zero_bytes(rows, s.rows * s.width * static_cast<int64_t>(sizeof(T)));
      parallel_rows(s.tokens, s.choices * s.width, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * s.choices; i < end * s.choices; i++) {
          T* to = s.row(rows, slot[i]);
          if (!to) continue;
          const T* from = x + i / s.choices * s.width;
          if (!gates) {
            std::copy_n(from, s.width, to);
          } else {
            for (int64_t d = 0; d < s.width; d++) to[d] = gates[i] * from[d];
          }
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_MoECombine(const KernelSpec& spec) {
  const Sizes s(spec.inputs[1].shape, spec.inputs[0].shape);
  const bool gated = has_input(spec, 2);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* rows = static_cast<const T*>(in[0]);
      const int64_t* slot = static_cast<const int64_t*>(in[1]);
      const T* gates = gated ? static_cast<const T*>(in[2]) : nullptr;
      T* y = static_cast<T*>(out[0]);
      parallel_rows(s.tokens, s.choices * s.width, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; t++) {
          T* to = y + t * s.width;
          std::fill_n(to, s.width, T(0));
          for (int64_t i = t * s.choices; i < (t + 1) * s.choices; i++) {
            const T* from = s.row(rows, slot[i]);
            const T gate = gates ? gates[i] : T(1);
            for (int64_t d = 0; from && d < s.width; d++) to[d] += gate * from[d];
          }
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_cpu_MoEGateGrad(const KernelSpec& spec) {
  const Sizes s(spec.inputs[1].shape, spec.inputs[0].shape);
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      const T* rows = static_cast<const T*>(in[0]);
      const int64_t* slot = static_cast<const int64_t*>(in[1]);
      const T* x = static_cast<const T*>(in[2]);
      T* dgates = static_cast<T*>(out[0]);
      parallel_rows(s.tokens, s.choices * s.width, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * s.choices; i < end * s.choices; i++) {
          const T* row = s.row(rows, slot[i]);
          const T* token = x + i / s.choices * s.width;
          // Several sums side by side: a compiler may not reorder one. In f64, so that long rows lose nothing.
          double sum[8] = {};
          int64_t d = 0;
          for (; row && d + 8 <= s.width; d += 8) {
            for (int64_t j = 0; j < 8; j++)
              sum[j] += static_cast<double>(row[d + j]) * static_cast<double>(token[d + j]);
          }
          for (; row && d < s.width; d++) sum[0] += static_cast<double>(row[d]) * static_cast<double>(token[d]);
          dgates[i] = static_cast<T>(((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])));
        }
      });
    });
  });
}

}  // namespace piper::ops
