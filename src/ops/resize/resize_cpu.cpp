// Resampling along one dim: x seen as [outer, from, inner].

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/ranges.h"
#include "ops/kernel.h"

namespace piper::ops {

namespace {

// Where element `o` of the result lies among the elements of the input.
double coordinate(const ir::Attrs& attrs, int64_t o) {
  const std::string mode = attrs.s("coordinates");
  const double at = static_cast<double>(o), scale = attrs.f("scale", 1), from = static_cast<double>(attrs.i("from"));
  // A given scale need not give a whole number of elements.
  const double to = scale * from;
  if (mode == "align_corners") return to == 1 ? 0 : at * (from - 1) / (to - 1);
  if (mode == "asymmetric") return at / scale;
  if (mode == "tf_half_pixel_for_nn") return (at + 0.5) / scale;
  if (mode == "pytorch_half_pixel" && attrs.i("to") == 1) return 0;
  double shift = 0;
  if (mode == "half_pixel_symmetric") shift = from / 2 * (1 - static_cast<double>(attrs.i("to")) / to);
  return shift + (at + 0.5) / scale - 0.5;
}

double nearest(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  return mode == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
}

struct Weight {
  int64_t from = 0, to = 0;
  double value = 0;
};

// The weights of one element of the result: first tap and values.
std::vector<double> taps(const ir::Attrs& attrs, double x, int64_t* first) {
  const std::string mode = attrs.s("mode");
  if (mode == "nearest") {
    *first = static_cast<int64_t>(nearest(attrs.s("nearest"), x));
    return {1};
  }
  const double floor = std::floor(x), t = x - floor;
  *first = static_cast<int64_t>(floor);
  if (mode == "linear") return {1 - t, t};
  --*first;
  const double a = attrs.f("cubic_a", -0.75);
  auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };       // d in [0, 1]
  auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };  // d in [1, 2]
  return {far(1 + t), near(t), near(1 - t), far(2 - t)};
}

// All weights, by element of the result. Taps outside are those of the edge, or nothing.
std::vector<Weight> weights(const ir::Attrs& attrs) {
  const int64_t from = attrs.i("from");
  const bool exclude = attrs.i("exclude_outside") != 0;
  std::vector<Weight> all;
  for (int64_t o = 0; o < attrs.i("to"); o++) {
    int64_t first = 0;
    std::vector<double> values = taps(attrs, coordinate(attrs, o), &first);
    double sum = 0;
    for (size_t k = 0; k < values.size(); k++) {
      const int64_t at = first + static_cast<int64_t>(k);
      if (exclude && (at < 0 || at >= from)) values[k] = 0;
      sum += values[k];
    }
    for (size_t k = 0; k < values.size(); k++) {
      if (values[k] == 0) continue;
      const int64_t at = std::clamp<int64_t>(first + static_cast<int64_t>(k), 0, from - 1);
      all.push_back({at, o, exclude ? values[k] / sum : values[k]});
    }
  }
  return all;
}

// y[outer, to, inner] = sum over weights of x[outer, from, inner]; `back`: the transpose.
std::unique_ptr<Kernel> make(const KernelSpec& spec, bool back) {
  const std::vector<int64_t>& shape = spec.inputs[0].shape;
  const std::ptrdiff_t axis = spec.attrs.i("axis");
  const int64_t outer = ir::num_elements(std::vector<int64_t>(shape.begin(), shape.begin() + axis));
  const int64_t inner = ir::num_elements(std::vector<int64_t>(shape.begin() + axis + 1, shape.end()));
  std::vector<Weight> list = weights(spec.attrs);
  if (back) {
    for (Weight& w : list) std::swap(w.from, w.to);
  }
  const int64_t in_size = shape[static_cast<size_t>(axis)] * inner,
                out_size = spec.outputs[0].shape[static_cast<size_t>(axis)] * inner;
  return visit_float(spec.inputs[0].dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    return kernel_from([=](const void* const* in, void* const* out, const RunContext&) {
      parallel_ranges(outer, static_cast<int64_t>(list.size()) * inner, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
          const T* x = static_cast<const T*>(in[0]) + i * in_size;
          T* y = static_cast<T*>(out[0]) + i * out_size;
          std::fill(y, y + out_size, T(0));
          for (const Weight& w : list) {
            const T value = static_cast<T>(w.value);
            for (int64_t k = 0; k < inner; k++) y[w.to * inner + k] += value * x[w.from * inner + k];
          }
        }
      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_Resample(const KernelSpec& spec) { return make(spec, false); }
std::unique_ptr<Kernel> make_cpu_ResampleGrad(const KernelSpec& spec) { return make(spec, true); }

}  // namespace piper::ops
