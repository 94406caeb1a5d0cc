// Operators that the importer handles itself: constants, shapes, sequences and branches never
// become ops.

#include "frontend/onnx/fold.h"
#include "frontend/onnx/import_node.h"
#include "ops/op.h"

namespace piper::frontend {

using ir::Attrs;
using ir::DType;
using ir::ValueId;
using support::Expected;
using support::user_error;

namespace {

std::vector<std::byte> pack(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes;
  for (double value : values) {
    const std::vector<std::byte> one = scalar_bytes(dtype, value);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

KnownInts known_list(const std::vector<int64_t>& values, bool scalar) {
  KnownInts known;
  if (!scalar) known.shape = {static_cast<int64_t>(values.size())};
  known.values.assign(values.begin(), values.end());
  return known;
}

}  // namespace

Expected<void> NodeImporter::import_constant(const SourceNode& node,
                                             const NodeAttributes& attributes) {
  const Attrs& attrs = attributes.attrs;
  const std::string& name = node.proto.output(0);
  Entry entry;
  if (auto it = attributes.tensors.find("value"); it != attributes.tensors.end()) {
    auto constant = builder_.tensor_constant(*it->second);
    if (!constant) return tl::make_unexpected(constant.error());
    entry.value = *constant;
  } else if (attrs.has("value_int")) {
    entry.known = known_list({attrs.i("value_int")}, true);
  } else if (attrs.has("value_ints")) {
    entry.known = known_list(attrs.ints("value_ints"), false);
  } else if (attrs.has("value_float")) {
    entry.value = builder_.add_constant(name, {DType::kF32, {}},
                                        scalar_bytes(DType::kF32, attrs.f("value_float")));
  } else if (attrs.has("value_floats")) {
    const std::vector<double> values = attrs.floats("value_floats");
    const ir::TensorType type{DType::kF32, {static_cast<int64_t>(values.size())}};
    entry.value = builder_.add_constant(name, type, pack(DType::kF32, values));
  } else {
    error_code_ = support::Code::E0404;
    return user_error("has no value that is a tensor of numbers");
  }
  if (entry.value.valid()) builder_.name_value(entry.value, name);
  builder_.set(name, std::move(entry));
  return {};
}

Expected<void> NodeImporter::import_constant_of_shape(const SourceNode& node,
                                                      const NodeAttributes& attributes) {
  auto shape = builder_.known(node.proto.input(0));
  if (!shape) return tl::make_unexpected(shape.error());
  if (*shape == nullptr) return user_error("the shape is computed from data");
  ValueId scalar;
  if (auto it = attributes.tensors.find("value"); it != attributes.tensors.end()) {
    auto constant = builder_.tensor_constant(*it->second);
    if (!constant) return tl::make_unexpected(constant.error());
    scalar = *constant;
  } else {
    scalar = builder_.scalar(DType::kF32, 0);
  }
  const DType dtype = builder_.model().value(scalar).type.dtype;
  if (ir::num_elements(builder_.model().value(scalar).type.shape) != ir::Dim(1)) {
    error_code_ = support::Code::E0404;
    return user_error("attribute `value` must hold one element");
  }
  const double value = *scalar_constant(builder_.model(), scalar);
  const ir::Shape target((*shape)->values.begin(), (*shape)->values.end());
  int64_t count = 1;
  bool is_static = true;
  for (ir::Dim d : target) {
    is_static = is_static && d.is_static();
    count *= d.constant;
  }
  if (is_static && count <= kMaxKnownElements && (dtype == DType::kI64 || dtype == DType::kI32)) {
    KnownInts known{dtype, ir::at(target, 1), {}};
    known.values.assign(static_cast<size_t>(count), ir::Dim(static_cast<int64_t>(value)));
    set_known(node, std::move(known));
    return {};
  }
  auto filled =
      emit(node, "Fill", {},
           {{"shape", target}, {"value", value}, {"dtype", std::string(ir::dtype_name(dtype))}});
  if (!filled) return tl::make_unexpected(filled.error());
  set_output(node, 0, *filled);
  return {};
}

Expected<void> NodeImporter::import_shape(const SourceNode& node, const Attrs& attrs) {
  auto entry = builder_.find(node.proto.input(0));
  if (!entry) return tl::make_unexpected(entry.error());
  ir::Shape shape;
  if ((*entry)->value.valid()) {
    shape = builder_.model().value((*entry)->value).type.shape;
  } else if ((*entry)->known) {
    shape.assign((*entry)->known->shape.begin(), (*entry)->known->shape.end());
  } else {
    return user_error("the shape of a sequence of tensors cannot be read");
  }
  if (node.proto.op_type() == "Shape") {
    set_known(node, known_shape(shape, attrs));
    return {};
  }
  auto size = known_size(shape);
  if (!size)
    return user_error("the size of " + to_string(shape) + " is not linear in the batch size");
  set_known(node, std::move(*size));
  return {};
}

Expected<void> NodeImporter::import_identity(const SourceNode& node) {
  const std::string& from = node.proto.input(0);
  const std::string& to = node.proto.output(0);
  // The exporter merged parameters of equal values: an identity that makes a value with a
  // parameter's name is what it left of the other one.
  if (const Twin* twin = builder_.twin(to)) {
    const ::onnx::TensorProto& tensor = *builder_.graph().initializers.at(twin->initializer);
    ir::TensorType type;
    if (!dtype_from_onnx(tensor.data_type(), &type.dtype))
      return user_error("has an element type that is not supported");
    type.shape.assign(tensor.dims().begin(), tensor.dims().end());
    Entry entry;
    auto made = builder_.add_weight(twin->weight, tensor, type);
    if (!made) return tl::make_unexpected(made.error());
    entry.value = *made;
    builder_.set(to, std::move(entry));
    return {};
  }
  auto entry = builder_.find(from);
  if (!entry) return tl::make_unexpected(entry.error());
  builder_.set(to, Entry(**entry));
  return {};
}

Expected<void> NodeImporter::import_split_to_sequence(const SourceNode& node, const Attrs& attrs) {
  auto data = builder_.value(node.proto.input(0));
  if (!data) return tl::make_unexpected(data.error());
  const ir::TensorType type = builder_.model().value(*data).type;
  const int64_t axis = ops::normalize_dim(attrs.i("axis", 0), type.shape.size());
  if (axis < 0) return user_error("axis is out of range for " + to_string(type));
  const ir::Dim size = type.shape[static_cast<size_t>(axis)];
  if (!size.is_static())
    return user_error("splits the batch", "every sample must be computed by itself");
  const bool has_split = node.proto.input_size() > 1 && !node.proto.input(1).empty();
  std::vector<int64_t> parts;
  if (has_split) {
    auto split = builder_.known(node.proto.input(1));
    if (!split) return tl::make_unexpected(split.error());
    if (*split == nullptr || !(*split)->is_static())
      return user_error("the sizes of the parts are computed from data");
    parts = (*split)->numbers();
    if ((*split)->shape.empty()) {
      const int64_t each = parts[0];
      if (each <= 0) return user_error("parts of " + std::to_string(each) + " elements");
      parts.assign(static_cast<size_t>(size.constant / each), each);
      if (size.constant % each != 0) parts.push_back(size.constant % each);
    }
  } else {
    parts.assign(static_cast<size_t>(size.constant), 1);
  }
  Entry entry;
  entry.is_sequence = true;
  int64_t start = 0;
  for (int64_t part : parts) {
    ir::Shape shape = type.shape;
    shape[static_cast<size_t>(axis)] = part;
    std::vector<int64_t> starts(shape.size(), 0);
    starts[static_cast<size_t>(axis)] = start;
    start += part;
    auto piece = emit(
        node, "Slice", {*data},
        {{"starts", starts}, {"steps", std::vector<int64_t>(shape.size(), 1)}, {"shape", shape}});
    if (piece && !has_split && attrs.i("keepdims", 1) == 0) {
      shape.erase(shape.begin() + axis);
      piece = emit(node, "Reshape", {*piece}, {{"shape", shape}});
    }
    if (!piece) return tl::make_unexpected(piece.error());
    entry.sequence.push_back(*piece);
  }
  if (start != size.constant) return user_error("the parts do not add up to " + to_string(size));
  builder_.set(node.proto.output(0), std::move(entry));
  return {};
}

Expected<void> NodeImporter::import_sequence_at(const SourceNode& node) {
  auto entry = builder_.find(node.proto.input(0));
  if (!entry) return tl::make_unexpected(entry.error());
  auto position = builder_.known(node.proto.input(1));
  if (!position) return tl::make_unexpected(position.error());
  if (!(*entry)->is_sequence || *position == nullptr || !(*position)->is_static()) {
    return user_error("takes an element of a sequence at a position that depends on data");
  }
  const int64_t size = static_cast<int64_t>((*entry)->sequence.size());
  int64_t at = (*position)->values[0].constant;
  if (at < 0) at += size;
  if (at < 0 || at >= size)
    return user_error("position is out of range of a sequence of " + std::to_string(size));
  set_output(node, 0, (*entry)->sequence[static_cast<size_t>(at)]);
  return {};
}

Expected<void> NodeImporter::import_sequence_construct(const SourceNode& node) {
  Entry entry;
  entry.is_sequence = true;
  for (const std::string& name : node.proto.input()) {
    auto value = builder_.value(name);
    if (!value) return tl::make_unexpected(value.error());
    entry.sequence.push_back(*value);
  }
  builder_.set(node.proto.output(0), std::move(entry));
  return {};
}

Expected<void> NodeImporter::import_concat_from_sequence(const SourceNode& node,
                                                         const Attrs& attrs) {
  auto entry = builder_.find(node.proto.input(0));
  if (!entry) return tl::make_unexpected(entry.error());
  if (!(*entry)->is_sequence || (*entry)->sequence.empty())
    return user_error("needs a sequence of tensors");
  std::vector<ValueId> parts = (*entry)->sequence;
  const bool new_axis = attrs.i("new_axis", 0) != 0;
  const size_t rank = builder_.model().value(parts[0]).type.shape.size() + (new_axis ? 1 : 0);
  const int64_t axis = ops::normalize_dim(attrs.i("axis", 0), rank);
  if (axis < 0) return user_error("axis is out of range");
  for (ValueId& part : parts) {
    if (!new_axis) break;
    ir::Shape shape = builder_.model().value(part).type.shape;
    shape.insert(shape.begin() + axis, ir::Dim(1));
    auto unsqueezed = emit(node, "Reshape", {part}, {{"shape", shape}});
    if (!unsqueezed) return tl::make_unexpected(unsqueezed.error());
    part = *unsqueezed;
  }
  auto whole = emit(node, "Concat", parts, {{"axis", axis}});
  if (!whole) return tl::make_unexpected(whole.error());
  set_output(node, 0, *whole);
  return {};
}

Expected<void> NodeImporter::import_if(const SourceNode& node, const NodeAttributes& attributes) {
  auto condition = builder_.known(node.proto.input(0));
  if (!condition) return tl::make_unexpected(condition.error());
  if (*condition == nullptr || !(*condition)->is_static() || (*condition)->values.size() != 1) {
    return user_error("the condition depends on data",
                      "export the model without control flow that looks at values");
  }
  const char* branch = (*condition)->values[0].constant != 0 ? "then_branch" : "else_branch";
  auto it = attributes.graphs.find(branch);
  if (it == attributes.graphs.end()) return user_error(std::string("has no ") + branch);
  const ::onnx::GraphProto& graph = *it->second;
  for (const auto& tensor : graph.initializer()) builder_.add_initializer(tensor);
  for (const auto& output : graph.output()) used_.insert(output.name());
  for (const auto& inner : graph.node()) add_used_names(inner, &used_);
  for (const auto& inner : graph.node()) {
    SourceNode source;
    source.proto = inner;
    source.opset = node.opset;
    source.path = exporter_path(inner);
    if (!source.path) source.path = node.path;
    const int errors = diagnostics_.error_count();
    run(source);
    if (diagnostics_.error_count() > errors) {
      for (const std::string& name : node.proto.output()) failed_.insert(name);
      return {};
    }
  }
  for (int i = 0; i < node.proto.output_size() && i < graph.output_size(); i++) {
    auto entry = builder_.find(graph.output(i).name());
    if (!entry) return tl::make_unexpected(entry.error());
    builder_.set(node.proto.output(i), Entry(**entry));
  }
  return {};
}

}  // namespace piper::frontend
