// Convolutions on the CPU: f32 by oneDNN, in whatever layout it is fastest in; f64 (tests and
// checks), and what oneDNN has no primitive for, by loops.

#include <algorithm>
#include <memory>
#include <string>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/ranges.h"
#include "ops/cpu/window_loops.h"
#include "ops/kernel.h"
#include "ops/window.h"
#include "support/error.h"

namespace piper::ops {

namespace {

using Dims = dnnl::memory::dims;

// The convolution that an op belongs to, seen forward: `in` and `out` are its spatial sizes.
struct Geometry {
  int64_t n = 0, group = 1, c = 0, m = 0;  // samples; channels of the input and of the output
  Window window;
  std::vector<int64_t> in, out;

  int64_t input_size() const { return c * ir::num_elements(in); }  // elements of a sample
  int64_t output_size() const { return m * ir::num_elements(out); }
  int64_t weight_size() const { return m * (c / group) * ir::num_elements(window.kernel); }
};

std::vector<int64_t> tail(const std::vector<int64_t>& shape) { return {shape.begin() + 2, shape.end()}; }

// From the shapes of the larger image (the convolution's input), the smaller and the weight.
Geometry geometry(const ir::Attrs& attrs, const std::vector<int64_t>& input, const std::vector<int64_t>& output,
                  const std::vector<int64_t>& weight) {
  Geometry g;
  g.n = input[0];
  g.group = attrs.i("group", 1);
  g.c = input[1];
  g.m = output[1];
  g.window = window_of(attrs, tail(weight));
  g.in = tail(input);
  g.out = tail(output);
  return g;
}

enum class Direction { kForward, kInput, kWeight };

// ---- oneDNN ----

// oneDNN keeps the number of threads from when a primitive is made.
class OneThread {
 public:
  explicit OneThread(bool on) : before_(omp_get_max_threads()) {
    if (on) omp_set_num_threads(1);
  }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A primitive with its arguments, executed without allocating. Slots hold pointers, set before each
// run.
class Call {
 public:
  Call() = default;
  Call(dnnl::primitive primitive, const std::vector<std::pair<int, dnnl::memory::desc>>& arguments)
      : primitive_(std::move(primitive)), stream_(cpu_engine()) {
    for (const auto& [arg, desc] : arguments) {
      memory_.emplace_back(desc, cpu_engine(), static_cast<void*>(nullptr));
      args_.push_back({arg, memory_.back().get()});
    }
  }
  void set(size_t i, const void* data) { dnnl_memory_set_data_handle(args_[i].memory, const_cast<void*>(data)); }
  void run() {
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(args_.size()), args_.data());
    PIPER_CHECK(status == dnnl_success, "a oneDNN convolution failed");
  }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memory_;
  std::vector<dnnl_exec_arg_t> args_;
};

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// One convolution in one direction: its operands are reordered to the layouts that the primitive
// wants, and back.
class Convolution {
 public:
  Convolution(const Geometry& g, Direction direction, bool bias);
  size_t scratch_bytes() const { return scratch_bytes_; }
  // Forward: x, w, bias -> y. Input: dy, w -> dx. Weight: x, dy -> dw.
  void run(const void* a, const void* b, const void* bias, void* out, std::byte* scratch);

 private:
  struct Operand {
    int arg = 0;
    bool moved = false;  // lies in scratch in another layout
    size_t offset = 0;
    Call reorder;
  };
  void add(int arg, const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted, bool is_output);

  std::vector<Operand> operands_;  // a, b, out, and the bias
  std::vector<std::pair<int, dnnl::memory::desc>> arguments_;
  Call call_;
  size_t scratch_bytes_ = 0, library_scratch_ = 0;
};

dnnl::memory::desc plain_desc(const Dims& dims) {
  Dims strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= dims[i];
  }
  return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, strides);
}

Dims joined(Dims head, const std::vector<int64_t>& rest) {
  head.insert(head.end(), rest.begin(), rest.end());
  return head;
}

Convolution::Convolution(const Geometry& g, Direction direction, bool bias) {
  using namespace dnnl;
  const Dims x = joined({g.n, g.c}, g.in), y = joined({g.n, g.m}, g.out);
  const Dims w = g.group > 1 ? joined({g.group, g.m / g.group, g.c / g.group}, g.window.kernel)
                             : joined({g.m, g.c}, g.window.kernel);
  auto any = [](const Dims& dims) { return memory::desc(dims, memory::data_type::f32, memory::format_tag::any); };
  Dims dilations = g.window.dilations;  // oneDNN counts the gaps
  for (int64_t& d : dilations) d--;
  primitive_attr attr;
  attr.set_scratchpad_mode(scratchpad_mode::user);
  const memory::desc bias_desc = bias ? plain_desc({g.m}) : memory::desc();
  const algorithm direct = algorithm::convolution_direct;
  const convolution_forward::primitive_desc forward(
      bias ? convolution_forward::desc(prop_kind::forward_training, direct, any(x), any(w), bias_desc, any(y),
                                       g.window.strides, dilations, g.window.begin, g.window.end)
           : convolution_forward::desc(prop_kind::forward_training, direct, any(x), any(w), any(y), g.window.strides,
                                       dilations, g.window.begin, g.window.end),
      attr, cpu_engine());
  memory::desc library;
  primitive made;
  if (direction == Direction::kForward) {
    add(DNNL_ARG_SRC, plain_desc(x), forward.src_desc(), false);
    add(DNNL_ARG_WEIGHTS, plain_desc(w), forward.weights_desc(), false);
    add(DNNL_ARG_DST, plain_desc(y), forward.dst_desc(), true);
    if (bias) add(DNNL_ARG_BIAS, bias_desc, bias_desc, false);
    library = forward.scratchpad_desc();
    made = convolution_forward(forward);
  } else if (direction == Direction::kInput) {
    const convolution_backward_data::primitive_desc backward(
        convolution_backward_data::desc(direct, any(x), any(w), any(y), g.window.strides, dilations, g.window.begin,
                                        g.window.end),
        attr, cpu_engine(), forward);
    add(DNNL_ARG_DIFF_DST, plain_desc(y), backward.diff_dst_desc(), false);
    add(DNNL_ARG_WEIGHTS, plain_desc(w), backward.weights_desc(), false);
    add(DNNL_ARG_DIFF_SRC, plain_desc(x), backward.diff_src_desc(), true);
    library = backward.scratchpad_desc();
    made = convolution_backward_data(backward);
  } else {
    const convolution_backward_weights::primitive_desc backward(
        convolution_backward_weights::desc(direct, any(x), any(w), any(y), g.window.strides, dilations, g.window.begin,
                                           g.window.end),
        attr, cpu_engine(), forward);
    add(DNNL_ARG_SRC, plain_desc(x), backward.src_desc(), false);
    add(DNNL_ARG_DIFF_DST, plain_desc(y), backward.diff_dst_desc(), false);
    add(DNNL_ARG_DIFF_WEIGHTS, plain_desc(w), backward.diff_weights_desc(), true);
    library = backward.scratchpad_desc();
    made = convolution_backward_weights(backward);
  }
  arguments_.emplace_back(DNNL_ARG_SCRATCHPAD, library);
  library_scratch_ = scratch_bytes_;
  scratch_bytes_ += aligned(library.get_size());
  call_ = Call(made, arguments_);
}

void Convolution::add(int arg, const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted, bool is_output) {
  Operand operand;
  operand.arg = arg;
  operand.moved = plain != wanted;
  operand.offset = scratch_bytes_;
  if (operand.moved) {
    scratch_bytes_ += aligned(wanted.get_size());
    const dnnl::memory::desc &from = is_output ? wanted : plain, &to = is_output ? plain : wanted;
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc pd(cpu_engine(), from, cpu_engine(), to, attr);
    // A reorder between plain and blocked layouts needs no memory of its own; should one ever,
    // there is room.
    operand.reorder = Call(dnnl::reorder(pd),
                           {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    scratch_bytes_ += aligned(pd.scratchpad_desc().get_size());
  }
  arguments_.emplace_back(arg, wanted);
  operands_.push_back(std::move(operand));
}

void Convolution::run(const void* a, const void* b, const void* bias, void* out, std::byte* scratch) {
  const void* data[] = {a, b, out, bias};
  for (size_t i = 0; i < operands_.size(); i++) {
    Operand& o = operands_[i];
    call_.set(i, o.moved ? scratch + o.offset : data[i]);
    if (!o.moved || i == 2) continue;
    o.reorder.set(0, data[i]);
    o.reorder.set(1, scratch + o.offset);
    o.reorder.run();
  }
  call_.set(operands_.size(), scratch + library_scratch_);
  call_.run();
  Operand& result = operands_[2];
  if (!result.moved) return;
  result.reorder.set(0, scratch + result.offset);
  result.reorder.set(1, out);
  result.reorder.run();
}

class LibraryKernel final : public Kernel {
 public:
  LibraryKernel(const Geometry& g, Direction direction, bool bias) : convolution_(g, direction, bias), bias_(bias) {}
  size_t scratch_bytes() const override { return convolution_.scratch_bytes(); }
  void run(const void* const* in, void* const* out, const RunContext& context) override {
    convolution_.run(in[0], in[1], bias_ ? in[2] : nullptr, out[0], static_cast<std::byte*>(context.scratch));
  }

 private:
  Convolution convolution_;
  bool bias_;
};

// The samples are cut into a few fixed parts, which are summed in order: oneDNN alone would cut
// them by the number of threads, and another number would give other bits.
class LibraryWeightKernel final : public Kernel {
 public:
  LibraryWeightKernel(const Geometry& g, bool accumulate) : g_(g), accumulate_(accumulate) {
    const int64_t count = std::min(g.n, kParts);
    OneThread one(true);
    for (int64_t p = 0; p < count; p++) {
      const int64_t begin = g.n * p / count;
      Geometry part = g;
      part.n = g.n * (p + 1) / count - begin;
      parts_.push_back({begin, std::make_unique<Convolution>(part, Direction::kWeight, false)});
      part_bytes_ = std::max(part_bytes_, aligned(parts_.back().convolution->scratch_bytes()));
    }
    partial_bytes_ = aligned(static_cast<size_t>(g.weight_size()) * sizeof(float));
  }
  size_t scratch_bytes() const override { return parts_.size() * part_bytes_ + parts_.size() * partial_bytes_; }

  void run(const void* const* in, void* const* out, const RunContext& context) override {
    std::byte* scratch = static_cast<std::byte*>(context.scratch);
    float* partial = reinterpret_cast<float*>(scratch + parts_.size() * part_bytes_);
    const float *x = static_cast<const float*>(in[0]), *dy = static_cast<const float*>(in[1]);
    const int64_t stride = static_cast<int64_t>(partial_bytes_ / sizeof(float)),
                  count = static_cast<int64_t>(parts_.size());
#pragma omp parallel for schedule(static) if (count > 1)
    for (int64_t p = 0; p < count; p++) {
      Part& part = parts_[static_cast<size_t>(p)];
      part.convolution->run(x + part.begin * g_.input_size(), dy + part.begin * g_.output_size(), nullptr,
                            partial + p * stride, scratch + static_cast<size_t>(p) * part_bytes_);
    }
    float* dw = static_cast<float*>(out[0]);
    parallel_ranges(g_.weight_size(), count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        float sum = 0;
        for (int64_t p = 0; p < count; p++) sum += partial[p * stride + i];
        dw[i] = accumulate_ ? dw[i] + sum : sum;
      }
    });
  }

 private:
  static constexpr int64_t kParts = 4;
  struct Part {
    int64_t begin = 0;
    std::unique_ptr<Convolution> convolution;
  };
  Geometry g_;
  bool accumulate_;
  std::vector<Part> parts_;
  size_t part_bytes_ = 0, partial_bytes_ = 0;
};

// ---- Loops ----

template <class T>
class LoopKernel final : public Kernel {
 public:
  LoopKernel(const Geometry& g, Direction direction, bool bias, bool accumulate)
      : g_(g), direction_(direction), bias_(bias), accumulate_(accumulate) {}
  void run(const void* const* in, void* const* out, const RunContext&) override {
    const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
    T* result = static_cast<T*>(out[0]);
    if (direction_ == Direction::kForward) forward(a, b, bias_ ? static_cast<const T*>(in[2]) : nullptr, result);
    if (direction_ == Direction::kInput) input(a, b, result);
    if (direction_ == Direction::kWeight) weight(a, b, result);
  }

 private:
  void forward(const T* x, const T* w, const T* bias, T* y) const {
    parallel_ranges(g_.n * g_.m, inputs_ * taps_ * output_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / g_.m, m = i % g_.m;
        T* row = y + i * output_;
        std::fill(row, row + output_, bias ? bias[m] : T(0));
        for (int64_t c = 0; c < inputs_; c++) {
          const T *image = x + (n * g_.c + m / outputs_ * inputs_ + c) * input_, *tap = w + (m * inputs_ + c) * taps_;
          loops_.each([&](int64_t from, int64_t to, int64_t k) { row[to] += image[from] * tap[k]; });
        }
      }
    });
  }
  void input(const T* dy, const T* w, T* dx) const {
    parallel_ranges(g_.n * g_.c, outputs_ * taps_ * output_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t n = i / g_.c, c = i % g_.c, first = c / inputs_ * outputs_;
        T* row = dx + i * input_;
        std::fill(row, row + input_, T(0));
        for (int64_t m = first; m < first + outputs_; m++) {
          const T *image = dy + (n * g_.m + m) * output_, *tap = w + (m * inputs_ + c % inputs_) * taps_;
          loops_.each([&](int64_t from, int64_t to, int64_t k) { row[from] += image[to] * tap[k]; });
        }
      }
    });
  }
  void weight(const T* x, const T* dy, T* dw) const {
    parallel_ranges(g_.m * inputs_, g_.n * taps_ * output_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t m = i / inputs_, c = m / outputs_ * inputs_ + i % inputs_;
        T* tap = dw + i * taps_;
        if (!accumulate_) std::fill(tap, tap + taps_, T(0));
        for (int64_t n = 0; n < g_.n; n++) {
          const T *image = x + (n * g_.c + c) * input_, *gradient = dy + (n * g_.m + m) * output_;
          loops_.each([&](int64_t from, int64_t to, int64_t k) { tap[k] += image[from] * gradient[to]; });
        }
      }
    });
  }

  Geometry g_;
  Direction direction_;
  bool bias_, accumulate_;
  WindowLoops loops_{g_.window, g_.in, g_.out};
  int64_t input_ = ir::num_elements(g_.in), output_ = ir::num_elements(g_.out),
          taps_ = ir::num_elements(g_.window.kernel);
  int64_t inputs_ = g_.c / g_.group, outputs_ = g_.m / g_.group;  // channels of a group
};

std::unique_ptr<Kernel> make(ir::DType dtype, const Geometry& g, Direction direction, bool bias, bool accumulate) {
  if (dtype == ir::DType::kF32 && g.n > 0 && g.input_size() > 0 && g.weight_size() > 0) {
    try {
      if (direction == Direction::kWeight) return std::make_unique<LibraryWeightKernel>(g, accumulate);
      return std::make_unique<LibraryKernel>(g, direction, bias);
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented && error.status != dnnl_invalid_arguments) throw;
    }
  }
  return visit_float(dtype, [&](auto tag) -> std::unique_ptr<Kernel> {
    return std::make_unique<LoopKernel<tag_type<decltype(tag)>>>(g, direction, bias, accumulate);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_Conv(const KernelSpec& spec) {
  const Geometry g = geometry(spec.attrs, spec.inputs[0].shape, spec.outputs[0].shape, spec.inputs[1].shape);
  return make(spec.inputs[0].dtype, g, Direction::kForward, spec.inputs.size() > 2 && spec.inputs[2].present, false);
}

std::unique_ptr<Kernel> make_cpu_ConvTranspose(const KernelSpec& spec) {
  const Geometry g = geometry(spec.attrs, spec.outputs[0].shape, spec.inputs[0].shape, spec.inputs[1].shape);
  return make(spec.inputs[0].dtype, g, Direction::kInput, false, false);
}

std::unique_ptr<Kernel> make_cpu_ConvGradWeight(const KernelSpec& spec) {
  const Geometry g = geometry(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape, spec.outputs[0].shape);
  return make(spec.inputs[0].dtype, g, Direction::kWeight, false, spec.attrs.i("accumulate") & 1);
}

}  // namespace piper::ops
