// The runtime's side of an operation: a kernel is made once for given shapes and attributes (when a plan is loaded) and
// then run many times. Making may allocate; running does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attributes.h"
#include "ir/types.h"

namespace piper::ops {

struct TensorDesc {
  bool present = true;
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> shape;
};

struct KernelSpec {
  std::string op;
  ir::Attrs attrs;
  std::vector<TensorDesc> inputs;
  std::vector<TensorDesc> outputs;
};

// What changes from run to run and is not a tensor.
struct RunContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t sample_start = 0;  // first local sample's index in the epoch-independent global order of the step
  void* scratch = nullptr;   // at least scratch_bytes() of the kernel, 64-byte aligned
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual size_t scratch_bytes() const { return 0; }
  // in[i], out[i]: dense row-major tensors, nullptr where absent. Inputs and outputs do not overlap.
  virtual void run(const void* const* in, void* const* out, const RunContext& context) = 0;
};

using MakeKernel = std::unique_ptr<Kernel> (*)(const KernelSpec&);

// A CPU kernel for the spec; nullptr when this op has none for these types. Threads: what OpenMP is set to.
std::unique_ptr<Kernel> make_cpu_kernel(const KernelSpec& spec);
bool has_cpu_kernel(std::string_view op);

// The maker of each op of the table, defined in its folder's <folder>_cpu.cpp.
#define PIPER_OP(name, folder) std::unique_ptr<Kernel> make_cpu_##name(const KernelSpec& spec);
#include "ops/ops.def"
#undef PIPER_OP

// A kernel without state from a callable (in, out, context).
template <class Fn>
std::unique_ptr<Kernel> kernel_from(Fn fn) {
  struct FromCallable final : Kernel {
    explicit FromCallable(Fn f) : fn(std::move(f)) {}
    void run(const void* const* in, void* const* out, const RunContext& context) override { fn(in, out, context); }
    Fn fn;
  };
  return std::make_unique<FromCallable>(std::move(fn));
}

}  // namespace piper::ops
