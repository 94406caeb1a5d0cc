#include "frontend/onnx/fold.h"

#include <cstdlib>

#include "ops/kernel.h"
#include "ops/op.h"

namespace piper::frontend {

using ir::Model;
using ir::Op;
using ir::Shape;
using ir::TensorType;
using ir::ValueId;

support::Expected<std::vector<TensorType>> infer_types(const Model& model, const Op& op) {
  const ops::OpDef* def = ops::find_op(op.kind);
  if (def == nullptr) return support::user_error("there is no operation `" + op.kind + "`");
  ops::InferInput in{op.attrs, {}};
  for (ValueId id : op.inputs) in.inputs.push_back(id.valid() ? &model.value(id).type : nullptr);
  return def->infer(in);
}

namespace {

const Op* producer(const Model& model, ValueId id, const char* kind) {
  const ir::Value& value = model.value(id);
  if (value.kind != ir::ValueKind::kComputed || !value.producer.valid()) return nullptr;
  const Op& op = model.op(value.producer);
  return op.kind == kind ? &op : nullptr;
}

bool all_equal(const std::vector<int64_t>& values, int64_t expected) {
  for (int64_t v : values) {
    if (v != expected) return false;
  }
  return true;
}

bool is_no_op(const Model& model, const Op& op) {
  const TensorType& type = model.value(op.inputs[0]).type;
  if (op.kind == "Identity") return true;
  if (op.kind == "Cast") return op.attrs.s("to") == ir::dtype_name(type.dtype);
  if (op.kind == "Reshape" || op.kind == "Expand") return op.attrs.shape("shape") == type.shape;
  if (op.kind == "Concat") return op.inputs.size() == 1;
  if (op.kind == "Slice") {
    return op.attrs.shape("shape") == type.shape && all_equal(op.attrs.ints("starts"), 0) &&
           all_equal(op.attrs.ints("steps"), 1);
  }
  if (op.kind == "Transpose") {
    const std::vector<int64_t> perm = op.attrs.ints("perm");
    for (size_t i = 0; i < perm.size(); i++) {
      if (perm[i] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }
  return false;
}

bool is_random(const Op& op) { return op.kind == "Dropout"; }

ops::TensorDesc describe(const TensorType& type) { return {true, type.dtype, ir::at(type.shape, 1)}; }

}  // namespace

std::optional<ValueId> simplify(const Model& model, Op* op) {
  if (op->inputs.empty() || !op->inputs[0].valid()) return std::nullopt;
  if (op->kind == "Reshape") {
    while (const Op* first = producer(model, op->inputs[0], "Reshape")) op->inputs[0] = first->inputs[0];
  }
  if (op->kind == "Transpose") {
    while (const Op* first = producer(model, op->inputs[0], "Transpose")) {
      const std::vector<int64_t> inner = first->attrs.ints("perm");
      std::vector<int64_t> perm = op->attrs.ints("perm");
      for (int64_t& p : perm) p = inner[p];
      op->attrs.set("perm", perm);
      op->inputs[0] = first->inputs[0];
    }
  }
  return is_no_op(model, *op) ? std::optional<ValueId>(op->inputs[0]) : std::nullopt;
}

std::optional<std::vector<ValueId>> fold(Model* model, const Op& op) {
  if (is_random(op)) return std::nullopt;
  for (ValueId id : op.inputs) {
    if (id.valid() && model->value(id).kind != ir::ValueKind::kConstant) return std::nullopt;
  }
  auto types = infer_types(*model, op);
  if (!types) return std::nullopt;
  ops::KernelSpec spec{op.kind, op.attrs, {}, {}};
  for (ValueId id : op.inputs) {
    spec.inputs.push_back(id.valid() ? describe(model->value(id).type) : ops::TensorDesc{false, {}, {}});
  }
  std::vector<std::vector<std::byte>> results;
  for (const TensorType& type : *types) {
    for (ir::Dim dim : type.shape) {
      if (!dim.is_static()) return std::nullopt;
    }
    const int64_t bytes = ir::num_elements(type.shape).constant * ir::dtype_size(type.dtype);
    if (bytes > kMaxFoldedBytes) return std::nullopt;
    spec.outputs.push_back(describe(type));
    results.emplace_back(static_cast<size_t>(bytes));
  }
  std::unique_ptr<ops::Kernel> kernel = ops::make_cpu_kernel(spec);
  if (!kernel) return std::nullopt;

  std::vector<const void*> in;
  for (ValueId id : op.inputs) {
    in.push_back(id.valid() ? model->constants[static_cast<size_t>(model->value(id).constant)].bytes.data() : nullptr);
  }
  std::vector<void*> out;
  for (auto& result : results) out.push_back(result.data());
  const size_t scratch_bytes = (kernel->scratch_bytes() + 63) / 64 * 64;
  std::unique_ptr<void, decltype(&std::free)> scratch(scratch_bytes > 0 ? std::aligned_alloc(64, scratch_bytes) : nullptr,
                                                      &std::free);
  ops::RunContext context;
  context.scratch = scratch.get();
  kernel->run(in.data(), out.data(), context);

  std::vector<ValueId> values;
  for (size_t i = 0; i < results.size(); i++) {
    values.push_back(model->add_constant("folded_" + std::to_string(model->values.size()), (*types)[i],
                                         std::move(results[i])));
  }
  return values;
}

}  // namespace piper::frontend
