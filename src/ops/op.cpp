#include "ops/op.h"

#include <algorithm>
#include <map>
#include <set>

#include "ops/composed.h"
#include "ops/recurrent.h"

namespace piper::ops {

namespace {

using ImportKey = std::pair<std::string_view, std::string_view>;  // op type, domain

std::string_view plain_domain(std::string_view domain) { return domain == "ai.onnx" ? "" : domain; }

const std::map<ImportKey, std::vector<const ImportRule*>>& import_table() {
  static const auto table = [] {
    std::map<ImportKey, std::vector<const ImportRule*>> rules;
    for (const OpDef* def : all_ops()) {
      for (const ImportRule& rule : def->imports) rules[{rule.op_type, rule.domain}].push_back(&rule);
    }
    for (const std::vector<ImportRule>* more : {&composed_rules(), &recurrent_rules()}) {
      for (const ImportRule& rule : *more) rules[{rule.op_type, rule.domain}].push_back(&rule);
    }
    return rules;
  }();
  return table;
}

}  // namespace

const std::vector<const OpDef*>& all_ops() {
  static const std::vector<const OpDef*> ops = {
#define PIPER_OP(name, folder) &k##name##Op,
#include "ops/ops.def"
#undef PIPER_OP
  };
  return ops;
}

const OpDef* find_op(std::string_view name) {
  static const auto table = [] {
    std::map<std::string_view, const OpDef*> by_name;
    for (const OpDef* def : all_ops()) by_name[def->name] = def;
    return by_name;
  }();
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

const ImportRule* find_import(std::string_view op_type, std::string_view domain, int opset, bool* known_type) {
  auto it = import_table().find({op_type, plain_domain(domain)});
  if (known_type) *known_type = it != import_table().end();
  if (it == import_table().end()) return nullptr;
  for (const ImportRule* rule : it->second) {
    if (rule->min_opset <= opset && opset <= rule->max_opset) return rule;
  }
  return nullptr;
}

std::vector<std::string> importable_ops() {
  std::set<std::string> names;
  for (const auto& [key, rules] : import_table()) {
    names.insert(key.second.empty() ? std::string(key.first) : std::string(key.second) + "." + std::string(key.first));
  }
  return {names.begin(), names.end()};
}

Expected<std::vector<ValueId>> append_op(ir::Model& model, ir::Op op) {
  const OpDef* def = find_op(op.kind);
  PIPER_CHECK(def, "no operation is called " + op.kind);
  InferInput in{op.attrs, {}};
  for (ValueId id : op.inputs) in.inputs.push_back(id.valid() ? &model.value(id).type : nullptr);
  auto types = def->infer(in);
  if (!types) return tl::make_unexpected(types.error());
  ir::OpId added = model.add_op(std::move(op), *types);
  return model.op(added).outputs;
}

double flops_of(const ir::Model& model, const ir::Op& op, int64_t batch) {
  const OpDef* def = find_op(op.kind);
  PIPER_CHECK(def, "no operation is called " + op.kind);
  CostInput in{op.attrs, {}, {}};
  auto shape = [&](ValueId id) { return id.valid() ? ir::at(model.value(id).type.shape, batch) : std::vector<int64_t>(); };
  for (ValueId id : op.inputs) in.inputs.push_back(shape(id));
  for (ValueId id : op.outputs) in.outputs.push_back(shape(id));
  return def->flops(in);
}

Expected<Shape> broadcast(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank);
  for (size_t i = 0; i < rank; i++) {
    const Dim x = i + a.size() < rank ? Dim(1) : a[i + a.size() - rank];
    const Dim y = i + b.size() < rank ? Dim(1) : b[i + b.size() - rank];
    if (x != y && x != Dim(1) && y != Dim(1)) {
      return support::user_error("shapes " + ir::to_string(a) + " and " + ir::to_string(b) + " do not broadcast");
    }
    result[i] = x == Dim(1) ? y : x;
  }
  return result;
}

int64_t normalize_dim(int64_t dim, size_t rank) {
  const int64_t r = static_cast<int64_t>(rank);
  if (dim < -r || dim >= r) return -1;
  return dim < 0 ? dim + r : dim;
}

double flops_per_element(const CostInput& in) { return static_cast<double>(ir::num_elements(in.outputs.at(0))); }
double flops_none(const CostInput&) { return 0; }

ValueId GradientBuilder::sum_to(ValueId gradient, ValueId like) {
  const Shape from = type(gradient).shape;
  const Shape to = type(like).shape;
  if (from == to) return gradient;
  PIPER_CHECK(from.size() >= to.size(), "a gradient of shape " + ir::to_string(from) + " for " + ir::to_string(to));
  const size_t extra = from.size() - to.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); i++) {
    const bool summed = from[i] != Dim(1) && (i < extra || to[i - extra] == Dim(1));
    PIPER_CHECK(i < extra || summed || from[i] == to[i - extra],
                "a gradient of shape " + ir::to_string(from) + " for " + ir::to_string(to));
    if (summed) axes.push_back(static_cast<int64_t>(i));
  }
  ValueId sum = gradient;
  if (!axes.empty()) sum = emit("ReduceSum", {gradient}, {{"axes", axes}, {"keepdims", int64_t{0}}});
  if (type(sum).shape != to) sum = emit("Reshape", {sum}, {{"shape", to}});
  return sum;
}

}  // namespace piper::ops
