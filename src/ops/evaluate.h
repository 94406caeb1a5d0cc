// Runs ops of a Model on the CPU kernels, one after the other and without a memory plan: the importer folds constant
// subgraphs with it, tests compare against it.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "ir/model.h"
#include "ops/kernel.h"
#include "support/error.h"

namespace piper::ops {

struct Tensor {
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t elements() const { return ir::num_elements(shape); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

// A tensor of zeros.
Tensor make_tensor(ir::DType dtype, std::vector<int64_t> shape);
// Element i of any dtype but bf16 as a number, and back.
double get_number(const Tensor& tensor, int64_t i);
void set_number(Tensor& tensor, int64_t i, double value);

// One run of an op's kernel; absent inputs are nullptr. An error when the op has no CPU kernel for these types.
support::Expected<std::vector<Tensor>> run_kernel(const std::string& op, const ir::Attrs& attrs,
                                                  const std::vector<const Tensor*>& inputs,
                                                  const std::vector<ir::TensorType>& output_types, int64_t batch = 1,
                                                  const RunContext& context = {});

// The wanted values of a model for `batch` samples. `given` holds inputs and parameters; constants are the model's.
// Only ops that the wanted values depend on are run; a needed value that nobody gave is an error naming it.
support::Expected<std::vector<Tensor>> evaluate(const ir::Model& model, const std::map<ir::ValueId, Tensor>& given,
                                                std::span<const ir::ValueId> wanted, int64_t batch = 1,
                                                const RunContext& context = {});

}  // namespace piper::ops
