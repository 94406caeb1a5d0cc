// Model: the typed op graph that the ONNX frontend makes and everything after reads.
// Ops are in topological order; values are SSA; ids are dense. Shapes are linear in the batch size B.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/attributes.h"
#include "ir/types.h"
#include "support/ids.h"

namespace piper::ir {

PIPER_ID(OpId);
PIPER_ID(ValueId);
PIPER_ID(ParamId);

enum class ValueKind {
  kInput,      // fed by the data, dim 0 is the batch
  kParameter,  // trained (or frozen) weights, or a buffer
  kConstant,   // known when the model is imported
  kComputed,   // the result of an op
};

struct Value {
  std::string name;  // the ONNX name, or one made from the op that computes it; unique
  TensorType type;
  ValueKind kind = ValueKind::kComputed;
  OpId producer;     // of kComputed
  ParamId param;     // of kParameter
  int32_t constant = -1;  // of kConstant: index into Model::constants
};

// One operation of the canonical op set (a row of ops.def).
struct Op {
  std::string kind;  // "Linear", "Attention", ... as in ops.def
  std::vector<ValueId> inputs;  // an absent optional input is an invalid id
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::string name;  // ONNX node name (of the first node it came from)
  std::string path;  // dotted module path: "transformer.h.0.attn.c_attn"
};

struct Parameter {
  std::string name;  // dotted, as in the framework's state_dict
  ValueId value;
  TensorType type;   // as the ops read it; static shape
  bool trainable = true;  // false: buffer or frozen
  bool is_buffer = false;
  // Where the initial value is: the initializer of this name in the model file; `transposed` when the file holds the
  // matrix the other way round than `name` is known for (checkpoints then carry the transpose). Empty: an init rule.
  std::string initializer;
  bool transposed = false;
};

struct Constant {
  TensorType type;  // static shape
  std::vector<std::byte> bytes;
};

struct Model {
  std::string producer;     // exporter and version, for humans
  uint64_t hash = 0;        // xxh3 of the ONNX file's bytes
  std::string file;         // path it was read from
  std::vector<Op> ops;
  std::vector<Value> values;
  std::vector<Parameter> params;
  std::vector<Constant> constants;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  const Value& value(ValueId id) const { return values[id.index()]; }
  Value& value(ValueId id) { return values[id.index()]; }
  const Op& op(OpId id) const { return ops[id.index()]; }

  ValueId add_value(std::string name, TensorType type, ValueKind kind);
  // Appends an op whose outputs have the given types; values are named after `name`.
  OpId add_op(Op op, const std::vector<TensorType>& output_types);
  ValueId add_constant(std::string name, TensorType type, std::vector<std::byte> bytes);
  // consumers[v] = ops that read value v, in order, each once per use.
  std::vector<std::vector<OpId>> consumers() const;
};

// One op a line: `%12:f32[B, 64] = Linear(%3, transformer.wte.weight) {transB=1}  # path`.
std::string to_string(const Model& model);

}  // namespace piper::ir
