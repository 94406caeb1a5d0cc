// The compiler's side of an operation: one OpDef per row of ops.def, defined in src/ops/<folder>/<folder>.cpp.
// It says how the op is imported from ONNX, what it returns, how it is differentiated and what it costs.
// Kernels are on the other side: kernel.h.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/model.h"
#include "support/error.h"

namespace piper::ops {

using ir::Attrs;
using ir::Dim;
using ir::DType;
using ir::Shape;
using ir::TensorType;
using ir::ValueId;
using support::Expected;

// Input types in order; an absent optional input has `present(i)` false.
struct InferInput {
  const Attrs& attrs;
  std::vector<const TensorType*> inputs;  // nullptr: absent
  bool present(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const TensorType& type(size_t i) const { return *inputs[i]; }
};
using InferFn = Expected<std::vector<TensorType>> (*)(const InferInput&);

// Builds the gradient of one op. A rule emits ops; it never computes. It may read any forward input or output of the
// op (they are then kept for the backward pass: read as little as the rule needs) and the gradients of its outputs.
class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;
  virtual const ir::Op& op() const = 0;
  ValueId input(size_t i) const { return i < op().inputs.size() ? op().inputs[i] : ValueId(); }
  ValueId output(size_t i) const { return op().outputs[i]; }
  virtual const TensorType& type(ValueId value) const = 0;
  // Gradient of the loss with respect to output i; invalid when nothing depends on that output.
  virtual ValueId grad(size_t i) const = 0;
  // Whether input i needs a gradient (a float value that depends on a trainable parameter or crosses into a chunk that
  // does). Rules skip the others.
  virtual bool wants(size_t i) const = 0;
  // Appends an op and returns its first output (all outputs with emit_all). Types come from the op's shape rule.
  virtual ValueId emit(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs = {}) = 0;
  virtual std::vector<ValueId> emit_all(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs = {}) = 0;
  // Adds `gradient` to the gradient of input i; its type must be the input's.
  virtual void add_grad(size_t i, ValueId gradient) = 0;
  // `gradient` summed over the dims along which `like` was broadcast, so that it has the type of `like`.
  ValueId sum_to(ValueId gradient, ValueId like);
};
using GradientFn = void (*)(GradientBuilder&);

// Floating-point operations of one evaluation, for shapes with their batch dims bound to `b`.
struct CostInput {
  const Attrs& attrs;
  std::vector<std::vector<int64_t>> inputs;  // shapes; absent: empty
  std::vector<std::vector<int64_t>> outputs;
};
using FlopsFn = double (*)(const CostInput&);

// One ONNX node on its way to canonical ops. Everything is neutral of protobuf.
class ImportContext {
 public:
  virtual ~ImportContext() = default;
  virtual std::string_view op_type() const = 0;
  virtual std::string_view domain() const = 0;  // "" is ai.onnx
  virtual int opset() const = 0;
  virtual const Attrs& attrs() const = 0;  // without tensors: constant_attr
  // An attribute that is a tensor, as a constant; invalid when the node has none of that name.
  virtual ValueId constant_attr(const std::string& name) = 0;
  // Where the node stands among the nodes of the model, from 0: what tells random ops apart.
  virtual int64_t node_index() const = 0;
  virtual size_t num_inputs() const = 0;
  virtual size_t num_outputs() const = 0;
  virtual bool has_input(size_t i) const = 0;
  // Whether somebody reads output i (an unused optional output need not be made).
  virtual bool output_used(size_t i) const = 0;
  virtual ValueId input(size_t i) = 0;
  virtual const TensorType& type(ValueId value) const = 0;
  // The integers of a small integer tensor known at import, possibly depending on the batch size (shapes); nothing when
  // they are not known.
  virtual const std::vector<Dim>* known_ints(size_t i) const = 0;
  // A scalar float or int constant input, e.g. the bounds of Clip.
  virtual std::optional<double> known_scalar(size_t i) const = 0;
  // All elements of a small float constant input, e.g. the scales of Resize.
  virtual std::optional<std::vector<double>> known_floats(size_t) const { return std::nullopt; }
  virtual ValueId emit(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs = {}) = 0;
  virtual std::vector<ValueId> emit_all(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs = {}) = 0;
  // A scalar constant of the given type.
  virtual ValueId constant(DType dtype, double value) = 0;
  virtual void set_output(size_t i, ValueId value) = 0;
};
// An error's message says what is wrong with the node; the importer adds its name and path.
using ImportFn = Expected<void> (*)(ImportContext&);

struct ImportRule {
  const char* op_type;
  const char* domain;
  int min_opset;
  int max_opset;
  ImportFn import;
};

struct OpDef {
  const char* name;
  InferFn infer;
  // nullptr: not differentiable, and `why_no_gradient` says why ("integer result").
  GradientFn gradient;
  const char* why_no_gradient;
  FlopsFn flops;
  std::vector<ImportRule> imports;
  // Bit i: output i may be accumulated into (attribute "accumulate" has that bit set: the kernel adds instead of
  // writing), so that gradients need no extra pass over memory.
  uint32_t accumulates = 0;
  // Whether the rows of different samples mix, given which dim of each input carries them (-1: none): then the batch
  // must not be cut. nullptr: sample-wise as long as the sample dim is kept by the shape rule.
  bool (*couples_samples)(const Attrs&, const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) = nullptr;
  // Emits, into the backward pass, what the op contributes to inputs that are statistics (buffers that training
  // advances, but no gradient), with add_grad. nullptr: it has none.
  GradientFn statistics = nullptr;
};

// The op of that name, nullptr when there is none.
const OpDef* find_op(std::string_view name);
const std::vector<const OpDef*>& all_ops();
// The rule that imports this ONNX op, nullptr when there is none. `known_type` tells whether the type exists at other
// opsets.
const ImportRule* find_import(std::string_view op_type, std::string_view domain, int opset, bool* known_type = nullptr);
// Names of all ONNX ops that some rule imports, sorted.
std::vector<std::string> importable_ops();

// Appends an op to a model, its output types by the shape rule; names outputs after `name`.
Expected<std::vector<ValueId>> append_op(ir::Model& model, ir::Op op);
double flops_of(const ir::Model& model, const ir::Op& op, int64_t batch);

// Helpers that shape rules share.
Expected<Shape> broadcast(const Shape& a, const Shape& b);  // numpy rules
int64_t normalize_dim(int64_t dim, size_t rank);             // negative from the end; -1 when out of range
double flops_per_element(const CostInput& in);              // elements of output 0
double flops_none(const CostInput&);

// Every op of the table, each defined in its folder.
#define PIPER_OP(name, folder) extern const OpDef k##name##Op;
#include "ops/ops.def"
#undef PIPER_OP

}  // namespace piper::ops
