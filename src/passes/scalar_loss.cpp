#include "passes/scalar_loss.h"

#include <cstring>
#include <optional>
#include <set>

namespace piper::passes {

using ir::Op;
using ir::OpId;
using ir::ValueId;
using ir::ValueKind;

namespace {

class Walker {
 public:
  Walker(const ir::Model& model, ScalarLoss& out) : model_(model), out_(out) {}

  // Adds weight * v to the terms.
  void walk(ValueId v, double weight) {
    if (out_.coupled.valid()) return;
    const ir::Value& value = model_.value(v);
    if (!value.producer.valid()) return add_plain(v, weight);
    const Op& op = model_.op(value.producer);
    if (op.kind == "Identity" || op.kind == "Reshape" || (op.kind == "Cast" && is_float(op.inputs[0]))) return walk(op.inputs[0], weight);
    if (op.kind == "Neg") return walk(op.inputs[0], -weight);
    if (op.kind == "Add" || op.kind == "Sub") {
      walk(op.inputs[0], weight);
      return walk(op.inputs[1], op.kind == "Add" ? weight : -weight);
    }
    if (op.kind == "ReduceMean") {
      if (ir::sample_dim(model_.value(op.inputs[0]).type.shape) >= 0) return add({ScalarTerm::Kind::kMean, weight, op.inputs[0], {}, {}});
      if (has_one_element(op.inputs[0])) return walk(op.inputs[0], weight);
    }
    if (op.kind == "Mul" || op.kind == "Div") return product(value.producer, weight);
    if (!depends_on_samples(v)) return add_plain(v, weight);
    out_.coupled = value.producer;
  }

 private:
  void product(OpId id, double weight) {
    const Op& op = model_.op(id);
    const std::optional<double> a = constant(op.inputs[0]), b = constant(op.inputs[1]);
    if (op.kind == "Mul" && a) return walk(op.inputs[1], weight * *a);
    if (b && op.kind == "Mul") return walk(op.inputs[0], weight * *b);
    if (b && *b != 0) return walk(op.inputs[0], weight / *b);
    if (op.kind == "Div" && ratio(op, weight)) return;
    out_.coupled = id;
  }

  // A sum over the batch divided by a count over the batch.
  bool ratio(const Op& op, double weight) {
    const OpId above = through_casts(op.inputs[0]), below = through_casts(op.inputs[1]);
    if (!above.valid() || !below.valid()) return false;
    const Op &sum = model_.op(above), &count = model_.op(below);
    if (sum.kind == "CrossEntropyLoss" && count.kind == "CountValid" && sum.inputs[1] == count.inputs[0] &&
        sum.attrs.i("ignore_index") == count.attrs.i("ignore_index")) {
      add({ScalarTerm::Kind::kCrossEntropy, weight, sum.inputs[0], {}, above});
      return true;
    }
    if (sum.kind != "ReduceSum" || count.kind != "ReduceSum") return false;
    const ValueId value = sum.inputs[0], divisor = count.inputs[0];
    if (ir::sample_dim(model_.value(value).type.shape) < 0 || ir::sample_dim(model_.value(divisor).type.shape) < 0) return false;
    if (depends_on_parameter(divisor)) return false;
    add({ScalarTerm::Kind::kRatio, weight, value, divisor, {}});
    return true;
  }

  void add(ScalarTerm term) { out_.terms.push_back(term); }

  // A scalar that is the same for every sample: a regularisation of the weights, say. Its mean is itself.
  void add_plain(ValueId v, double weight) { add({ScalarTerm::Kind::kMean, weight, v, {}, {}}); }

  OpId through_casts(ValueId v) const {
    OpId id = model_.value(v).producer;
    while (id.valid()) {
      const Op& op = model_.op(id);
      if (op.kind != "Cast" && op.kind != "Reshape" && op.kind != "Identity") break;
      id = model_.value(op.inputs[0]).producer;
    }
    return id;
  }

  bool is_float(ValueId v) const { return ir::is_float(model_.value(v).type.dtype); }
  bool has_one_element(ValueId v) const { return ir::num_elements(model_.value(v).type.shape) == ir::Dim(1); }

  // The number in a constant of one float or integer.
  std::optional<double> constant(ValueId v) const {
    const ir::Value& value = model_.value(v);
    if (value.kind != ValueKind::kConstant || !has_one_element(v)) return std::nullopt;
    const std::vector<std::byte>& bytes = model_.constants[static_cast<size_t>(value.constant)].bytes;
    if (value.type.dtype == ir::DType::kF32) return read<float>(bytes);
    if (value.type.dtype == ir::DType::kF64) return read<double>(bytes);
    if (value.type.dtype == ir::DType::kI64) return static_cast<double>(read<int64_t>(bytes));
    return std::nullopt;
  }
  template <class T>
  static T read(const std::vector<std::byte>& bytes) {
    T x{};
    std::memcpy(&x, bytes.data(), sizeof(T));
    return x;
  }

  bool depends_on_samples(ValueId v) const {
    return depends(v, [](const ir::Value& value) { return value.kind == ValueKind::kInput; });
  }
  bool depends_on_parameter(ValueId v) const {
    return depends(v, [](const ir::Value& value) { return value.kind == ValueKind::kParameter; });
  }
  template <class Test>
  bool depends(ValueId v, Test test) const {
    std::set<ValueId> seen;
    std::vector<ValueId> work{v};
    while (!work.empty()) {
      const ValueId at = work.back();
      work.pop_back();
      if (!at.valid() || !seen.insert(at).second) continue;
      const ir::Value& value = model_.value(at);
      if (test(value)) return true;
      if (!value.producer.valid()) continue;
      for (ValueId in : model_.op(value.producer).inputs) work.push_back(in);
    }
    return false;
  }

  const ir::Model& model_;
  ScalarLoss& out_;
};

}  // namespace

ScalarLoss take_apart(const ir::Model& model, ValueId scalar) {
  ScalarLoss out;
  Walker(model, out).walk(scalar, 1.0);
  return out;
}

}  // namespace piper::passes
