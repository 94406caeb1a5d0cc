#include "frontend/onnx/canonical/rewriter.h"

#include <cmath>
#include <string_view>
#include <tuple>

#include "frontend/onnx/fold.h"

namespace piper::frontend {

using ir::Model;
using ir::Op;
using ir::OpId;
using ir::ValueId;

int Rewriter::run(Matcher match) {
  uses_.assign(model_.values.size(), 0);
  for (const Op& op : model_.ops) {
    for (ValueId id : op.inputs) {
      if (id.valid()) uses_[id.index()]++;
    }
  }
  for (ValueId id : model_.outputs) uses_[id.index()] += 2;
  int replaced = 0;
  std::vector<Op> ops;
  ops.reserve(model_.ops.size());
  for (const Op& op : model_.ops) {
    pending_.clear();
    root_ = &op;
    if (match(*this, op)) {
      ops.insert(ops.end(), pending_.begin(), pending_.end());
      replaced++;
    } else {
      ops.push_back(op);
    }
  }
  model_.ops = std::move(ops);
  memo_.clear();
  sweep(&model_);
  return replaced;
}

const Op* Rewriter::producer(ValueId id) const {
  if (!id.valid()) return nullptr;
  const ir::Value& value = model_.value(id);
  if (value.kind != ir::ValueKind::kComputed || !value.producer.valid()) return nullptr;
  return &model_.op(value.producer);
}

const Op* Rewriter::producer(ValueId id, const char* kind) const {
  const Op* op = producer(id);
  return op != nullptr && op->kind == kind && op->outputs[0] == id ? op : nullptr;
}

std::optional<double> Rewriter::scalar(ValueId id) const {
  return id.valid() ? scalar_constant(model_, id) : std::nullopt;
}

bool Rewriter::is_scalar(ValueId id, double value) const {
  auto number = scalar(id);
  return number && near(*number, value);
}

const ir::Constant* Rewriter::constant(ValueId id) const {
  if (!id.valid() || model_.value(id).kind != ir::ValueKind::kConstant) return nullptr;
  return &model_.constants[static_cast<size_t>(model_.value(id).constant)];
}

ValueId Rewriter::emit(const char* kind, std::vector<ValueId> inputs, ir::Attrs attrs,
                       const Op* named) {
  const std::vector<ValueId> outputs = emit_all(kind, std::move(inputs), std::move(attrs), named);
  return outputs.empty() ? ValueId() : outputs[0];
}

std::vector<ValueId> Rewriter::emit_all(const char* kind, std::vector<ValueId> inputs,
                                        ir::Attrs attrs, const Op* named) {
  Op op;
  op.kind = kind;
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  const Op& from = named != nullptr ? *named : *root_;
  op.name = from.name;
  op.path = from.path;
  if (auto same = simplify(model_, &op)) return {*same};
  if (auto folded = fold(&model_, op)) return *folded;
  auto types = infer_types(model_, op);
  if (!types) return {};
  for (const ir::TensorType& type : *types) {
    const std::string name = model_.value(from.outputs[0]).name + "." + op.kind;
    op.outputs.push_back(model_.add_value(name, type, ir::ValueKind::kComputed));
  }
  pending_.push_back(op);
  return op.outputs;
}

bool Rewriter::replace(const Op& root, const char* kind, std::vector<ValueId> inputs,
                       ir::Attrs attrs, const Op* named) {
  Op op;
  op.kind = kind;
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  const Op& from = named != nullptr ? *named : root;
  op.name = from.name;
  op.path = from.path;
  auto types = infer_types(model_, op);
  if (!types || (*types)[0] != type(root.outputs[0])) return false;
  op.outputs.push_back(root.outputs[0]);
  for (size_t i = 1; i < types->size(); i++) {
    const std::string name = model_.value(root.outputs[0]).name + "." + std::to_string(i);
    op.outputs.push_back(model_.add_value(name, (*types)[i], ir::ValueKind::kComputed));
  }
  pending_.push_back(std::move(op));
  return true;
}

void sweep(Model* model) {
  std::vector<bool> live(model->values.size(), false);
  for (ValueId id : model->outputs) live[id.index()] = true;
  std::vector<bool> keep(model->ops.size(), false);
  for (size_t i = model->ops.size(); i-- > 0;) {
    const Op& op = model->ops[i];
    for (ValueId id : op.outputs) keep[i] = keep[i] || live[id.index()];
    if (!keep[i]) continue;
    for (ValueId id : op.inputs) {
      if (id.valid()) live[id.index()] = true;
    }
  }
  std::vector<Op> ops;
  for (size_t i = 0; i < model->ops.size(); i++) {
    if (keep[i]) ops.push_back(std::move(model->ops[i]));
  }
  model->ops = std::move(ops);
  for (ir::Value& value : model->values) value.producer = OpId();
  for (size_t i = 0; i < model->ops.size(); i++) {
    for (ValueId id : model->ops[i].outputs)
      model->value(id).producer = OpId(static_cast<int64_t>(i));
  }
}

void merge_constants(Model* model) {
  std::map<std::tuple<ir::DType, std::string, std::string_view>, ValueId> first;
  std::vector<ValueId> same(model->values.size());
  for (size_t i = 0; i < model->values.size(); i++) {
    const ir::Value& value = model->values[i];
    if (value.kind != ir::ValueKind::kConstant) continue;
    const std::vector<std::byte>& bytes =
        model->constants[static_cast<size_t>(value.constant)].bytes;
    const std::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const ValueId id(static_cast<int64_t>(i));
    same[i] =
        first.try_emplace({value.type.dtype, to_string(value.type.shape), view}, id).first->second;
  }
  for (Op& op : model->ops) {
    for (ValueId& id : op.inputs) {
      if (id.valid() && same[id.index()].valid()) id = same[id.index()];
    }
  }
}

void compact(Model* model) {
  std::vector<bool> used(model->values.size(), false);
  for (ValueId id : model->inputs) used[id.index()] = true;
  for (ValueId id : model->outputs) used[id.index()] = true;
  for (const Op& op : model->ops) {
    for (ValueId id : op.inputs) {
      if (id.valid()) used[id.index()] = true;
    }
    for (ValueId id : op.outputs) used[id.index()] = true;
  }
  std::vector<ValueId> renumbered(model->values.size());
  std::vector<ir::Value> values;
  std::vector<ir::Constant> constants;
  std::vector<ir::Parameter> params;
  for (size_t i = 0; i < used.size(); i++) {
    if (!used[i]) continue;
    renumbered[i] = ValueId(static_cast<int64_t>(values.size()));
    values.push_back(std::move(model->values[i]));
    ir::Value& value = values.back();
    if (value.kind != ir::ValueKind::kConstant) continue;
    constants.push_back(std::move(model->constants[static_cast<size_t>(value.constant)]));
    value.constant = static_cast<int32_t>(constants.size() - 1);
  }
  for (ir::Parameter& param : model->params) {
    const ValueId id = renumbered[param.value.index()];
    if (!id.valid()) continue;
    param.value = id;
    values[id.index()].param = ir::ParamId(static_cast<int64_t>(params.size()));
    params.push_back(std::move(param));
  }
  auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) id = id.valid() ? renumbered[id.index()] : id;
  };
  renumber(model->inputs);
  renumber(model->outputs);
  for (Op& op : model->ops) {
    renumber(op.inputs);
    renumber(op.outputs);
  }
  model->values = std::move(values);
  model->constants = std::move(constants);
  model->params = std::move(params);
}

bool near(double a, double b) { return a == b || std::abs(a - b) <= 1e-6 * std::abs(b); }

Scaled peel_scale(const Rewriter& r, ValueId value) {
  Scaled result{value, 1};
  for (;;) {
    const Op* mul = r.producer(result.value, "Mul");
    const Op* div = r.producer(result.value, "Div");
    const Op* op = mul != nullptr ? mul : div;
    if (op == nullptr) return result;
    int at = 1;
    std::optional<double> number = r.scalar(op->inputs[1]);
    if (!number && mul != nullptr) {
      at = 0;
      number = r.scalar(op->inputs[0]);
    }
    if (!number) return result;
    const ValueId rest = op->inputs[static_cast<size_t>(1 - at)];
    if (r.type(rest) != r.type(result.value)) return result;
    result.scale = mul != nullptr ? result.scale * *number : result.scale / *number;
    result.value = rest;
  }
}

namespace {

void flatten(const Rewriter& r, ValueId value, bool expand, Product* product) {
  if (auto number = r.scalar(value)) {
    product->scale *= *number;
    return;
  }
  const Op* mul = expand ? r.producer(value, "Mul") : nullptr;
  const Op* div = expand ? r.producer(value, "Div") : nullptr;
  if (mul != nullptr) {
    for (ValueId factor : mul->inputs) flatten(r, factor, r.single_use(factor), product);
    return;
  }
  if (div != nullptr) {
    if (auto number = r.scalar(div->inputs[1])) {
      product->scale /= *number;
      flatten(r, div->inputs[0], r.single_use(div->inputs[0]), product);
      return;
    }
  }
  product->factors.push_back(value);
}

}  // namespace

Product flatten_product(const Rewriter& r, ValueId value) {
  Product product;
  flatten(r, value, true, &product);
  return product;
}

}  // namespace piper::frontend
