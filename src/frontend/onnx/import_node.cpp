#include "frontend/onnx/import_node.h"

#include <algorithm>
#include <array>
#include <deque>

#include "frontend/onnx/baked_batch.h"
#include "frontend/onnx/fold.h"
#include "ops/op.h"

namespace piper::frontend {

using ir::Attrs;
using ir::DType;
using ir::ValueId;
using support::Code;
using support::Error;
using support::Expected;
using support::user_error;

namespace {

constexpr std::array kImporterOps = {"CastLike",       "ConcatFromSequence",
                                     "Constant",       "ConstantOfShape",
                                     "Identity",       "If",
                                     "SequenceAt",     "SequenceConstruct",
                                     "Shape",          "Size",
                                     "SplitToSequence"};

// An emitted op did not fit. Import rules return values, not errors, so this ends the rule; it
// never leaves this file.
struct EmitFailed {
  Error error;
};

template <class T>
T unwrap(Expected<T> result) {
  if (!result) throw EmitFailed{result.error()};
  return std::move(*result);
}

}  // namespace

bool is_importer_op(const std::string& op_type) {
  return std::find(kImporterOps.begin(), kImporterOps.end(), op_type) != kImporterOps.end();
}

void add_used_names(const ::onnx::NodeProto& node, std::set<std::string>* used) {
  used->insert(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    for (const auto& output : attribute.g().output()) used->insert(output.name());
    for (const auto& inner : attribute.g().node()) add_used_names(inner, used);
  }
}

// What an import rule sees of the node.
class RuleContext final : public ops::ImportContext {
 public:
  RuleContext(NodeImporter& importer, const SourceNode& node, const Attrs& attrs,
              const NodeAttributes& attributes)
      : importer_(importer),
        builder_(importer.builder_),
        node_(node),
        attrs_(attrs),
        attributes_(attributes) {}

  std::string_view op_type() const override { return node_.proto.op_type(); }
  std::string_view domain() const override {
    return node_.proto.domain() == "ai.onnx" ? std::string_view()
                                             : std::string_view(node_.proto.domain());
  }
  int opset() const override { return std::min(node_.opset, kNewestOpset); }
  const Attrs& attrs() const override { return attrs_; }
  ValueId constant_attr(const std::string& name) override {
    auto it = attributes_.tensors.find(name);
    return it == attributes_.tensors.end() ? ValueId()
                                           : unwrap(builder_.tensor_constant(*it->second));
  }
  int64_t node_index() const override { return importer_.node_index_; }
  size_t num_inputs() const override { return static_cast<size_t>(node_.proto.input_size()); }
  size_t num_outputs() const override { return static_cast<size_t>(node_.proto.output_size()); }
  bool has_input(size_t i) const override { return i < num_inputs() && !name(i).empty(); }
  bool output_used(size_t i) const override {
    return i < num_outputs() && importer_.used_.count(node_.proto.output(static_cast<int>(i))) > 0;
  }
  ValueId input(size_t i) override {
    if (!has_input(i))
      throw EmitFailed{
          Error{support::ErrorKind::kUser, "input " + std::to_string(i) + " is missing", ""}};
    return unwrap(builder_.value(name(i)));
  }
  const ir::TensorType& type(ValueId value) const override {
    return builder_.model().value(value).type;
  }
  const std::vector<ir::Dim>* known_ints(size_t i) const override;
  std::optional<double> known_scalar(size_t i) const override;
  std::optional<std::vector<double>> known_floats(size_t i) const override {
    if (!has_input(i)) return std::nullopt;
    return constant_elements(builder_.model(), unwrap(builder_.value(name(i))));
  }
  ValueId emit(std::string_view kind, std::vector<ValueId> inputs, Attrs attrs) override {
    return emit_all(kind, std::move(inputs), std::move(attrs))[0];
  }
  std::vector<ValueId> emit_all(std::string_view kind, std::vector<ValueId> inputs,
                                Attrs attrs) override {
    ir::Op op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.attrs = std::move(attrs);
    op.name = node_.proto.name();
    return unwrap(builder_.emit(std::move(op), node_.path));
  }
  ValueId constant(DType dtype, double value) override { return builder_.scalar(dtype, value); }
  void set_output(size_t i, ValueId value) override {
    importer_.set_output(node_, static_cast<int>(i), value);
  }

 private:
  const std::string& name(size_t i) const { return node_.proto.input(static_cast<int>(i)); }
  std::vector<ir::Dim> rewrite_target(std::vector<ir::Dim> target) const;

  NodeImporter& importer_;
  Builder& builder_;
  const SourceNode& node_;
  const Attrs& attrs_;
  const NodeAttributes& attributes_;
  mutable std::deque<std::vector<ir::Dim>> known_;  // what known_ints returned pointers to
};

// A batch size of the export in a target is replaced here, so that no import rule has to think of
// it.
std::vector<ir::Dim> RuleContext::rewrite_target(std::vector<ir::Dim> target) const {
  const std::string& kind = node_.proto.op_type();
  if (kind != "Reshape" && kind != "Expand") return target;
  const ir::Shape data = type(unwrap(builder_.value(name(0)))).shape;
  if (kind == "Expand") return expand_target(data, target);
  const bool allow_zero = attrs_.i("allowzero") != 0;
  auto shape = reshape_target(data, target, allow_zero, builder_.graph().literal_batch);
  if (!shape) {
    if (ir::sample_dim(data) >= 0) importer_.error_code_ = Code::E0406;
    throw EmitFailed{shape.error()};
  }
  return *shape;
}

const std::vector<ir::Dim>* RuleContext::known_ints(size_t i) const {
  if (!has_input(i)) return nullptr;
  const KnownInts* known = unwrap(builder_.known(name(i)));
  if (known == nullptr) return nullptr;
  std::vector<ir::Dim> values = known->values;
  known_.push_back(i == 1 ? rewrite_target(std::move(values)) : std::move(values));
  return &known_.back();
}

std::optional<double> RuleContext::known_scalar(size_t i) const {
  if (!has_input(i)) return std::nullopt;
  if (const KnownInts* known = unwrap(builder_.known(name(i)))) {
    if (known->values.size() != 1 || !known->is_static()) return std::nullopt;
    return static_cast<double>(known->values[0].constant);
  }
  return scalar_constant(builder_.model(), unwrap(builder_.value(name(i))));
}

bool NodeImporter::reads_failed(const SourceNode& node) const {
  for (const std::string& name : node.proto.input()) {
    if (failed_.count(name)) return true;
  }
  return false;
}

void NodeImporter::fail(const SourceNode& node, Code code, const Error& error) {
  for (const std::string& name : node.proto.output()) failed_.insert(name);
  auto& diagnostic =
      diagnostics_.report(code, describe(node.proto, node.path) + ": " + error.message);
  if (!error.help.empty()) diagnostic.help(error.help);
}

void NodeImporter::run(const SourceNode& node) {
  if (reads_failed(node)) {
    for (const std::string& name : node.proto.output()) failed_.insert(name);
    return;
  }
  auto attributes = decode_attributes(node.proto);
  if (!attributes) return fail(node, Code::E0404, attributes.error());
  error_code_ = Code::E0405;
  node_index_++;
  if (auto ok = import(node, *attributes); !ok) fail(node, error_code_, ok.error());
}

Expected<void> NodeImporter::import(const SourceNode& node, const NodeAttributes& attributes) {
  const bool standard = node.proto.domain().empty() || node.proto.domain() == "ai.onnx";
  if (standard) {
    auto known = try_known(node, attributes.attrs);
    if (!known) return tl::make_unexpected(known.error());
    if (*known) return {};
    auto special = try_special(node, attributes);
    if (!special) return tl::make_unexpected(special.error());
    if (*special) return {};
  }
  return import_by_rule(node, attributes);
}

// Nodes over known integers give known integers, if they can.
NodeImporter::Done NodeImporter::try_known(const SourceNode& node, const Attrs& attrs) {
  const std::string& kind = node.proto.op_type();
  if (node.proto.output_size() != 1 || node.proto.input_size() == 0) return false;
  KnownNode known{kind, node.opset, attrs, {}};
  for (const std::string& name : node.proto.input()) {
    if (name.empty()) {
      known.inputs.push_back(nullptr);
      continue;
    }
    auto ints = builder_.known(name);
    if (!ints) return tl::make_unexpected(ints.error());
    if (*ints == nullptr) return false;
    known.inputs.push_back(*ints);
  }
  std::optional<KnownInts> result = evaluate_known(known);
  if (!result) return false;
  set_known(node, std::move(*result));
  return true;
}

NodeImporter::Done NodeImporter::try_special(const SourceNode& node,
                                             const NodeAttributes& attributes) {
  const std::string& kind = node.proto.op_type();
  Expected<void> done;
  if (kind == "Constant") {
    done = import_constant(node, attributes);
  } else if (kind == "ConstantOfShape") {
    done = import_constant_of_shape(node, attributes);
  } else if (kind == "Shape" || kind == "Size") {
    done = import_shape(node, attributes.attrs);
  } else if (kind == "Identity") {
    done = import_identity(node);
  } else if (kind == "SplitToSequence") {
    done = import_split_to_sequence(node, attributes.attrs);
  } else if (kind == "SequenceAt") {
    done = import_sequence_at(node);
  } else if (kind == "SequenceConstruct") {
    done = import_sequence_construct(node);
  } else if (kind == "ConcatFromSequence") {
    done = import_concat_from_sequence(node, attributes.attrs);
  } else if (kind == "If") {
    done = import_if(node, attributes);
  } else {
    return false;
  }
  if (!done) return tl::make_unexpected(done.error());
  return true;
}

namespace {

// A mistake between a number equal to the traced batch size and a dim that follows the batch is a
// baked-in batch.
bool looks_baked(const Builder& builder, const SourceNode& node, Builder& values) {
  if (!builder.graph().literal_batch) return false;
  bool follows = false, literal = false;
  for (const std::string& name : node.proto.input()) {
    if (name.empty()) continue;
    auto entry = values.find(name);
    if (!entry || !(*entry)->value.valid()) continue;
    for (ir::Dim d : builder.model().value((*entry)->value).type.shape) {
      follows = follows || !d.is_static();
      literal = literal || d == ir::Dim(*builder.graph().literal_batch);
    }
  }
  return follows && literal;
}

int onnx_number(DType dtype) {
  using ::onnx::TensorProto;
  for (int number :
       {TensorProto::FLOAT, TensorProto::DOUBLE, TensorProto::BFLOAT16, TensorProto::INT64,
        TensorProto::INT32, TensorProto::BOOL, TensorProto::UINT8}) {
    DType found;
    if (dtype_from_onnx(number, &found) && found == dtype) return number;
  }
  return 0;
}

}  // namespace

Expected<void> NodeImporter::import_by_rule(const SourceNode& source,
                                            const NodeAttributes& attributes) {
  SourceNode as_cast;
  const SourceNode* node = &source;
  Attrs attrs = attributes.attrs;
  try {
    if (source.proto.op_type() == "CastLike" && source.proto.input_size() == 2) {
      const std::string& like = source.proto.input(1);
      const KnownInts* known_like = unwrap(builder_.known(like));
      const DType to = known_like != nullptr
                           ? known_like->dtype
                           : builder_.model().value(unwrap(builder_.value(like))).type.dtype;
      attrs.set("to", int64_t{onnx_number(to)});
      as_cast = source;
      as_cast.proto.set_op_type("Cast");
      as_cast.proto.mutable_input()->RemoveLast();
      node = &as_cast;
      auto known = try_known(*node, attrs);
      if (known && *known) return {};
    }
    RuleContext context(*this, *node, attrs, attributes);
    const ops::ImportRule* rule =
        ops::find_import(context.op_type(), context.domain(), context.opset());
    if (rule == nullptr) {
      error_code_ = Code::E0402;
      return user_error("is supported only where its result can be computed at import");
    }
    auto done = rule->import(context);
    if (!done && looks_baked(builder_, *node, builder_)) error_code_ = Code::E0406;
    return done;
  } catch (const EmitFailed& failed) {
    if (error_code_ == Code::E0405 && looks_baked(builder_, *node, builder_))
      error_code_ = Code::E0406;
    return tl::make_unexpected(failed.error);
  }
}

Expected<ValueId> NodeImporter::emit(const SourceNode& node, const char* kind,
                                     std::vector<ValueId> inputs, Attrs attrs) {
  ir::Op op;
  op.kind = kind;
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  op.name = node.proto.name();
  auto outputs = builder_.emit(std::move(op), node.path);
  if (!outputs) return tl::make_unexpected(outputs.error());
  return (*outputs)[0];
}

void NodeImporter::set_output(const SourceNode& node, int i, ValueId value) {
  if (i >= node.proto.output_size() || node.proto.output(i).empty()) return;
  Entry entry;
  entry.value = value;
  builder_.set(node.proto.output(i), std::move(entry));
  builder_.name_value(value, node.proto.output(i));
}

void NodeImporter::set_known(const SourceNode& node, KnownInts known) {
  Entry entry;
  entry.known = std::move(known);
  builder_.set(node.proto.output(0), std::move(entry));
}

}  // namespace piper::frontend
