// Rates of the CPU kernels that matter for a transformer: GFLOP/s of matrix products, GB/s of what is bound by memory
// (bytes that must be read and written, once each), milliseconds for all. OMP_NUM_THREADS sets the threads.
// Usage: piper_bench_kernels [only rows whose name contains this]

#include <fmt/format.h>
#include <omp.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ops/kernel.h"
#include "ops/update.h"

namespace {

using namespace piper;
using Clock = std::chrono::steady_clock;

struct Buffer {
  explicit Buffer(size_t bytes) : data(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64))) {
    std::memset(data.get(), 0, bytes);
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data;
};

std::string filter;

// Best seconds of several runs, each of which repeats fn for at least 20 ms.
template <class Fn>
double best_of(const Fn& fn) {
  fn();
  double best = 1e30;
  for (int round = 0; round < 7; round++) {
    int repeats = 0;
    auto start = Clock::now();
    double seconds = 0;
    do {
      fn();
      repeats++;
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    } while (seconds < 0.02);
    best = std::min(best, seconds / repeats);
  }
  return best;
}

void report(const std::string& name, double seconds, double flops, double bytes) {
  fmt::print("{:<46} {:>9.3f} ms", name, seconds * 1e3);
  if (flops > 0) fmt::print(" {:>8.1f} GFLOP/s", flops / seconds * 1e-9);
  if (bytes > 0) fmt::print(" {:>8.1f} GB/s", bytes / seconds * 1e-9);
  fmt::print("\n");
}

ops::TensorDesc f32(std::vector<int64_t> shape) { return {.dtype = ir::DType::kF32, .shape = std::move(shape)}; }
ops::TensorDesc of(ir::DType dtype, std::vector<int64_t> shape) { return {.dtype = dtype, .shape = std::move(shape)}; }

size_t bytes_of(const ops::TensorDesc& t) {
  return t.present ? static_cast<size_t>(ir::num_elements(t.shape) * ir::dtype_size(t.dtype)) : 0;
}

// Floats between -0.5 and 0.5; integers and the rest stay zero, a count becomes 1.
Buffer make_input(const ops::TensorDesc& desc) {
  Buffer buffer(bytes_of(desc));
  uint32_t state = 12345;
  int64_t n = desc.present ? ir::num_elements(desc.shape) : 0;
  for (int64_t i = 0; i < n; i++) {
    state = state * 1664525 + 1013904223;
    if (desc.dtype == ir::DType::kF32) {
      reinterpret_cast<float*>(buffer.data.get())[i] = static_cast<float>(state >> 8) / 16777216.0f - 0.5f;
    }
    if (desc.dtype == ir::DType::kF64) reinterpret_cast<double*>(buffer.data.get())[i] = 1;
  }
  return buffer;
}

void kernel(const std::string& name, ops::KernelSpec spec, double flops, bool show_bytes) {
  if (name.find(filter) == std::string::npos) return;
  auto made = ops::make_cpu_kernel(spec);
  if (!made) {
    fmt::print("{:<46} has no kernel\n", name);
    return;
  }
  std::vector<Buffer> buffers;
  std::vector<const void*> in;
  std::vector<void*> out;
  double bytes = 0;
  for (const ops::TensorDesc& desc : spec.inputs) {
    buffers.push_back(make_input(desc));
    in.push_back(desc.present ? buffers.back().data.get() : nullptr);
    bytes += static_cast<double>(bytes_of(desc));
  }
  for (const ops::TensorDesc& desc : spec.outputs) {
    buffers.emplace_back(bytes_of(desc));
    out.push_back(buffers.back().data.get());
    bytes += static_cast<double>(bytes_of(desc));
  }
  Buffer scratch(made->scratch_bytes());
  ops::RunContext context;
  context.scratch = scratch.data.get();
  report(name, best_of([&] { made->run(in.data(), out.data(), context); }), flops, show_bytes ? bytes : 0);
}

void linear(int64_t rows, int64_t k, int64_t n) {
  double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(k) * static_cast<double>(n);
  for (int64_t trans : {0, 1}) {
    std::string shape = fmt::format("{}x{}x{}{}", rows, k, n, trans ? " [N,K]" : " [K,N]");
    ops::TensorDesc w = trans ? f32({n, k}) : f32({k, n});
    kernel("Linear " + shape, {"Linear", {{"trans_w", trans}}, {f32({rows, k}), w, f32({n})}, {f32({rows, n})}}, flops,
           false);
    kernel("LinearGradInput " + shape, {"LinearGradInput", {{"trans_w", trans}}, {f32({rows, n}), w}, {f32({rows, k})}},
           flops, false);
    kernel(
        "LinearGradWeight " + shape,
        {"LinearGradWeight", {{"trans_w", trans}, {"accumulate", int64_t{1}}}, {f32({rows, k}), f32({rows, n})}, {w}},
        flops, false);
  }
  kernel(fmt::format("LinearGradBias {}x{}", rows, n), {"LinearGradBias", {}, {f32({rows, n})}, {f32({n})}}, 0, true);
}

void attention(int64_t b, int64_t h, int64_t g, int64_t s, int64_t d, int64_t causal) {
  double pairs = static_cast<double>(b * h * s) * static_cast<double>(s) / (causal ? 2 : 1);
  ops::TensorDesc q = f32({b, h, s, d}), k = f32({b, g, s, d}), lse = f32({b, h, s}), none{.present = false};
  ir::Attrs attrs{{"causal", causal}, {"scale", 0.125}};
  std::string shape = fmt::format("{}x{}/{}x{}x{}{}", b, h, g, s, d, causal ? " causal" : "");
  double width = static_cast<double>(d);
  kernel("Attention " + shape, {"Attention", attrs, {q, k, k}, {q, lse}}, pairs * 4 * width, false);
  kernel("AttentionGrad " + shape, {"AttentionGrad", attrs, {q, k, k, none, q, lse, q}, {q, k, k}}, pairs * 10 * width,
         false);
}

void rows_of(int64_t rows, int64_t n) {
  ops::TensorDesc x = f32({rows, n}), p = f32({n}), r = f32({rows});
  ir::Attrs axis{{"axis", int64_t{-1}}};
  std::string shape = fmt::format(" {}x{}", rows, n);
  kernel("LayerNorm" + shape, {"LayerNorm", axis, {x, p, p}, {x, r, r}}, 0, true);
  kernel("LayerNormGrad" + shape, {"LayerNormGrad", axis, {x, p, r, r, x}, {x, p, p}}, 0, true);
  kernel("RmsNorm" + shape, {"RmsNorm", axis, {x, p}, {x, r}}, 0, true);
  kernel("RmsNormGrad" + shape, {"RmsNormGrad", axis, {x, p, r, x}, {x, p}}, 0, true);
  kernel("Softmax" + shape, {"Softmax", axis, {x}, {x}}, 0, true);
  kernel("SoftmaxGrad" + shape, {"SoftmaxGrad", axis, {x, x}, {x}}, 0, true);
  kernel("SwiGlu" + shape, {"SwiGlu", {}, {x, x}, {x}}, 0, true);
  kernel("SwiGluGrad" + shape, {"SwiGluGrad", {}, {x, x, x}, {x, x}}, 0, true);
}

void cross_entropy(int64_t rows, int64_t classes) {
  ops::TensorDesc x = f32({rows, classes}), t = of(ir::DType::kI64, {rows}), one = of(ir::DType::kF64, {1});
  std::string shape = fmt::format(" {}x{}", rows, classes);
  kernel("CrossEntropyLoss" + shape, {"CrossEntropyLoss", {}, {x, t}, {one}}, 0, true);
  kernel("CrossEntropyGrad" + shape, {"CrossEntropyGrad", {{"weight", 1.0}}, {x, t, one}, {x}}, 0, true);
}

void updates(int64_t n) {
  ops::TensorDesc desc = f32({n});
  Buffer w = make_input(desc), g = make_input(desc), m(bytes_of(desc)), v(bytes_of(desc));
  auto at = [](Buffer& b) { return reinterpret_cast<float*>(b.data.get()); };
  ops::UpdateStep step{.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .t = 3};
  double bytes = static_cast<double>(bytes_of(desc)), sum = 0, bad = 0;
  auto row = [&](const std::string& name, double factor, auto fn) {
    if (name.find(filter) != std::string::npos) report(fmt::format("{} {}", name, n), best_of(fn), 0, factor * bytes);
  };
  row("AdamW", 7, [&] { ops::adamw(at(w), at(g), at(m), at(v), n, step); });
  row("Sgd", 3, [&] { ops::sgd(at(w), at(g), nullptr, n, step); });
  row("SumOfSquares", 1, [&] { ops::sum_of_squares(at(g), n, &sum, &bad); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) filter = argv[1];
  fmt::print("{} threads\n", omp_get_max_threads());
  for (int64_t rows : {512, 4096}) {
    linear(rows, 160, 640);
    linear(rows, 768, 3072);
  }
  linear(512, 768, 50257);
  attention(8, 5, 5, 64, 32, 1);
  attention(2, 12, 12, 256, 64, 1);
  attention(2, 12, 12, 256, 64, 0);
  attention(1, 12, 12, 1024, 64, 1);
  attention(4, 8, 2, 512, 128, 1);
  ops::TensorDesc x = f32({2, 12, 256, 64}), angle = f32({256, 32});
  for (int64_t interleaved : {0, 1}) {
    kernel(interleaved ? "Rotary interleaved 2x12x256x64" : "Rotary 2x12x256x64",
           {"Rotary", {{"interleaved", interleaved}}, {x, angle, angle}, {x}}, 0, true);
  }
  rows_of(512, 160);
  rows_of(4096, 768);
  cross_entropy(512, 256);
  cross_entropy(512, 50257);
  updates(1 << 24);
}
