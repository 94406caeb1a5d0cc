#include "ops/evaluate.h"

#include "ops/cpu/dispatch.h"

namespace piper::ops {

using support::Expected;
using support::user_error;

namespace {

// Kernels are told that their memory is aligned.
struct Scratch {
  explicit Scratch(size_t bytes) : memory(bytes + 64) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    aligned = memory.data() + (64 - address % 64) % 64;
  }
  std::vector<std::byte> memory;
  void* aligned;
};

// Which ops the wanted values depend on, given that the values of `known` need not be computed.
std::vector<bool> needed_ops(const ir::Model& model, const std::map<ir::ValueId, Tensor>& known,
                             std::span<const ir::ValueId> wanted) {
  std::vector<bool> value_needed(model.values.size(), false), op_needed(model.ops.size(), false);
  for (ir::ValueId id : wanted) value_needed[id.index()] = true;
  for (size_t o = model.ops.size(); o-- > 0;) {
    for (ir::ValueId out : model.ops[o].outputs) {
      if (out.valid() && value_needed[out.index()] && known.count(out) == 0) op_needed[o] = true;
    }
    if (!op_needed[o]) continue;
    for (ir::ValueId in : model.ops[o].inputs) {
      if (in.valid()) value_needed[in.index()] = true;
    }
  }
  return op_needed;
}

}  // namespace

Tensor make_tensor(ir::DType dtype, std::vector<int64_t> shape) {
  const size_t bytes = static_cast<size_t>(ir::num_elements(shape) * ir::dtype_size(dtype));
  return Tensor{dtype, std::move(shape), std::vector<std::byte>(bytes)};
}

double get_number(const Tensor& tensor, int64_t i) {
  return visit_dtype(tensor.dtype, [&](auto tag) {
    return static_cast<double>(tensor.as<tag_type<decltype(tag)>>()[i]);
  });
}

void set_number(Tensor& tensor, int64_t i, double value) {
  visit_dtype(tensor.dtype, [&](auto tag) {
    using T = tag_type<decltype(tag)>;
    tensor.as<T>()[i] = static_cast<T>(value);
  });
}

Expected<std::vector<Tensor>> run_kernel(const std::string& op, const ir::Attrs& attrs,
                                         const std::vector<const Tensor*>& inputs,
                                         const std::vector<ir::TensorType>& output_types, int64_t batch,
                                         const RunContext& context) {
  KernelSpec spec{op, attrs, {}, {}};
  std::vector<const void*> in;
  for (const Tensor* tensor : inputs) {
    spec.inputs.push_back(tensor ? TensorDesc{true, tensor->dtype, tensor->shape} : TensorDesc{false, {}, {}});
    in.push_back(tensor ? tensor->bytes.data() : nullptr);
  }
  std::vector<Tensor> results;
  for (const ir::TensorType& type : output_types) results.push_back(make_tensor(type.dtype, ir::at(type.shape, batch)));
  std::vector<void*> out;
  for (Tensor& tensor : results) {
    spec.outputs.push_back(TensorDesc{true, tensor.dtype, tensor.shape});
    out.push_back(tensor.bytes.data());
  }
  std::unique_ptr<Kernel> kernel = make_cpu_kernel(spec);
  if (!kernel) {
    const std::string type = spec.inputs.empty() ? "" : " for " + std::string(ir::dtype_name(spec.inputs[0].dtype));
    return user_error("there is no CPU kernel of `" + op + "`" + type);
  }
  Scratch scratch(kernel->scratch_bytes());
  RunContext run = context;
  run.scratch = scratch.aligned;
  kernel->run(in.data(), out.data(), run);
  return results;
}

Expected<std::vector<Tensor>> evaluate(const ir::Model& model, const std::map<ir::ValueId, Tensor>& given,
                                       std::span<const ir::ValueId> wanted, int64_t batch, const RunContext& context) {
  std::map<ir::ValueId, Tensor> values = given;
  auto find = [&](ir::ValueId id) -> Expected<const Tensor*> {
    if (auto it = values.find(id); it != values.end()) return &it->second;
    const ir::Value& value = model.value(id);
    if (value.kind != ir::ValueKind::kConstant) return user_error("the value `" + value.name + "` is not given");
    const ir::Constant& constant = model.constants[static_cast<size_t>(value.constant)];
    return &values.emplace(id, Tensor{constant.type.dtype, ir::at(constant.type.shape, batch), constant.bytes})
                .first->second;
  };
  const std::vector<bool> needed = needed_ops(model, given, wanted);
  for (size_t o = 0; o < model.ops.size(); o++) {
    if (!needed[o]) continue;
    const ir::Op& op = model.ops[o];
    std::vector<const Tensor*> inputs;
    for (ir::ValueId id : op.inputs) {
      if (!id.valid()) {
        inputs.push_back(nullptr);
        continue;
      }
      auto tensor = find(id);
      if (!tensor) return tl::make_unexpected(tensor.error());
      inputs.push_back(*tensor);
    }
    std::vector<ir::TensorType> types;
    for (ir::ValueId id : op.outputs) types.push_back(model.value(id).type);
    auto results = run_kernel(op.kind, op.attrs, inputs, types, batch, context);
    if (!results) return tl::make_unexpected(results.error());
    for (size_t i = 0; i < results->size(); i++) values.insert_or_assign(op.outputs[i], std::move((*results)[i]));
  }
  std::vector<Tensor> answer;
  for (ir::ValueId id : wanted) {
    auto tensor = find(id);
    if (!tensor) return tl::make_unexpected(tensor.error());
    answer.push_back(**tensor);
  }
  return answer;
}

}  // namespace piper::ops
