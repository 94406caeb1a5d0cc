#include "frontend/onnx/builder.h"

#include <algorithm>
#include <cstring>

#include "frontend/onnx/fold.h"
#include "ops/op.h"

namespace piper::frontend {

using ir::DType;
using ir::TensorType;
using ir::ValueId;
using support::Expected;
using support::user_error;

namespace {

template <class T>
void append(std::vector<std::byte>* bytes, T value) {
  const size_t at = bytes->size();
  bytes->resize(at + sizeof(T));
  std::memcpy(bytes->data() + at, &value, sizeof(T));
}

uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

ir::Shape static_shape(const std::vector<int64_t>& dims) {
  return ir::Shape(dims.begin(), dims.end());
}

int64_t integer_at(const std::vector<std::byte>& bytes, DType dtype, size_t i) {
  int64_t wide = 0;
  int32_t narrow = 0;
  switch (dtype) {
    case DType::kI64:
      std::memcpy(&wide, bytes.data() + i * 8, 8);
      return wide;
    case DType::kI32:
      std::memcpy(&narrow, bytes.data() + i * 4, 4);
      return narrow;
    default:
      return static_cast<int64_t>(bytes[i]);
  }
}

}  // namespace

std::vector<std::byte> scalar_bytes(DType dtype, double value) {
  std::vector<std::byte> bytes;
  switch (dtype) {
    case DType::kF32:
      append(&bytes, static_cast<float>(value));
      break;
    case DType::kF64:
      append(&bytes, value);
      break;
    case DType::kBF16:
      append(&bytes, to_bf16(static_cast<float>(value)));
      break;
    case DType::kI64:
      append(&bytes, static_cast<int64_t>(value));
      break;
    case DType::kI32:
      append(&bytes, static_cast<int32_t>(value));
      break;
    case DType::kBool:
      append(&bytes, static_cast<uint8_t>(value != 0));
      break;
    case DType::kU8:
      append(&bytes, static_cast<uint8_t>(value));
      break;
  }
  return bytes;
}

std::vector<std::byte> known_bytes(const KnownInts& known) {
  std::vector<std::byte> bytes;
  for (ir::Dim d : known.values) {
    if (known.dtype == DType::kI64) append(&bytes, d.constant);
    if (known.dtype == DType::kI32) append(&bytes, static_cast<int32_t>(d.constant));
    if (known.dtype == DType::kBool) append(&bytes, static_cast<uint8_t>(d.constant != 0));
  }
  return bytes;
}

void Builder::add_inputs() {
  for (const SourceInput& input : graph_.inputs) {
    // Data has a sample in each place of dim 0, whatever form the model wants.
    TensorType type = input.type;
    const int batch = std::max(0, ir::sample_dim(type.shape));
    std::rotate(type.shape.begin(), type.shape.begin() + batch,
                type.shape.begin() + std::min(batch + 1, static_cast<int>(type.shape.size())));
    const ValueId id = model_.add_value(input.name, type, ir::ValueKind::kInput);
    model_.inputs.push_back(id);
    named_.insert(id.value);
    entries_[input.name].value = batch == 0 ? id : samples_at(id, static_cast<size_t>(batch));
  }
  for (const auto& [name, weight] : graph_.weightless) {
    entries_[name].value = add_parameter(name, "", weight.type, {weight.kind, name});
  }
}

ValueId Builder::samples_at(ValueId input, size_t dim) {
  std::vector<int64_t> perm;
  for (size_t i = 0; i < model_.value(input).type.shape.size(); i++)
    perm.push_back(static_cast<int64_t>(i < dim ? i + 1 : i == dim ? 0 : i));
  ir::Op transpose;
  transpose.kind = "Transpose";
  transpose.inputs = {input};
  transpose.attrs.set("perm", perm);
  return (*emit(std::move(transpose), ""))[0];  // fits by construction
}

const Twin* Builder::twin(const std::string& name) const {
  auto it = weights_.twins.find(name);
  return it == weights_.twins.end() ? nullptr : &it->second;
}

ValueId Builder::add_parameter(const std::string& name, const std::string& initializer,
                               const TensorType& type, const Weight& weight) {
  const ValueId id = model_.add_value(name, type, ir::ValueKind::kParameter);
  named_.insert(id.value);
  model_.value(id).param = ir::ParamId(static_cast<int64_t>(model_.params.size()));
  ir::Parameter parameter;
  parameter.name = name;
  parameter.value = id;
  parameter.type = type;
  parameter.is_buffer = weight.kind != WeightKind::kParameter;
  parameter.trainable = !parameter.is_buffer;
  parameter.initializer = initializer;
  parameter.transposed = weight.transposed;
  model_.params.push_back(std::move(parameter));
  return id;
}

ValueId Builder::add_constant(const std::string& name, const TensorType& type,
                              std::vector<std::byte> bytes) {
  return model_.add_constant(name, type, std::move(bytes));
}

Expected<ValueId> Builder::tensor_constant(const ::onnx::TensorProto& tensor) {
  auto decoded = decoder_.decode(tensor);
  if (!decoded) return tl::make_unexpected(decoded.error());
  return add_constant("constant_" + std::to_string(model_.values.size()),
                      {decoded->dtype, static_shape(decoded->dims)},
                      {decoded->data, decoded->data + decoded->bytes});
}

ValueId Builder::scalar(DType dtype, double value) {
  return add_constant("constant_" + std::to_string(model_.values.size()), {dtype, {}},
                      scalar_bytes(dtype, value));
}

Expected<Entry*> Builder::load_initializer(const ::onnx::TensorProto& tensor) {
  TensorType type;
  if (!dtype_from_onnx(tensor.data_type(), &type.dtype)) {
    return user_error("tensor `" + tensor.name() + "` has element type " +
                      onnx_type_name(tensor.data_type()) + ", which is not supported");
  }
  type.shape = static_shape({tensor.dims().begin(), tensor.dims().end()});
  Weight weight{WeightKind::kConstant, tensor.name()};
  if (auto it = weights_.initializers.find(tensor.name());
      graph_.initializers.count(tensor.name()) && it != weights_.initializers.end()) {
    weight = it->second;
  }
  if (!weight.transpose_of.empty()) return load_transposed(tensor.name(), weight);
  auto made = add_weight(weight, tensor, type);
  if (!made) return tl::make_unexpected(made.error());
  Entry& entry = entries_[tensor.name()];
  entry.value = *made;
  return &entry;
}

Expected<Entry*> Builder::load_transposed(const std::string& name, const Weight& weight) {
  auto original = value(weight.transpose_of);
  if (!original) return tl::make_unexpected(original.error());
  ir::Op transpose;
  transpose.kind = "Transpose";
  transpose.inputs = {*original};
  transpose.attrs.set("perm", std::vector<int64_t>{1, 0});
  auto outputs = emit(std::move(transpose), module_of(weight.name));
  if (!outputs) return tl::make_unexpected(outputs.error());
  Entry& entry = entries_[name];
  entry.value = (*outputs)[0];
  return &entry;
}

Expected<ValueId> Builder::add_weight(const Weight& weight, const ::onnx::TensorProto& tensor,
                                      const TensorType& type) {
  if (weight.kind == WeightKind::kParameter)
    return add_parameter(weight.name, tensor.name(), type, weight);
  auto decoded = decoder_.decode(tensor);
  if (!decoded) return tl::make_unexpected(decoded.error());
  const ValueId id =
      add_constant(weight.name, type, {decoded->data, decoded->data + decoded->bytes});
  named_.insert(id.value);
  if (weight.kind == WeightKind::kBuffer)
    buffers_.push_back({id, tensor.name(), weight.transposed});
  return id;
}

Expected<Entry*> Builder::find(const std::string& name) {
  if (auto it = entries_.find(name); it != entries_.end()) return &it->second;
  if (auto it = extra_initializers_.find(name); it != extra_initializers_.end())
    return load_initializer(*it->second);
  auto it = graph_.initializers.find(name);
  if (it == graph_.initializers.end()) return user_error("nothing makes value `" + name + "`");
  return load_initializer(*it->second);
}

Expected<ValueId> Builder::value(const std::string& name) {
  auto entry = find(name);
  if (!entry) return tl::make_unexpected(entry.error());
  if ((*entry)->value.valid()) return (*entry)->value;
  if ((*entry)->is_sequence) return user_error("value `" + name + "` is a sequence of tensors");
  const KnownInts& known = *(*entry)->known;
  if (!known.is_static()) {
    return user_error("value `" + name + "` is " + to_string(ir::Shape(known.values)) +
                      ", a number that depends on the batch size B and is used as data");
  }
  (*entry)->value =
      add_constant(name, {known.dtype, static_shape(known.shape)}, known_bytes(known));
  named_.insert((*entry)->value.value);
  return (*entry)->value;
}

Expected<const KnownInts*> Builder::known(const std::string& name) {
  auto entry = find(name);
  if (!entry) return tl::make_unexpected(entry.error());
  if ((*entry)->known) return &*(*entry)->known;
  if (!(*entry)->value.valid()) return nullptr;
  const ir::Value& value = model_.value((*entry)->value);
  if (value.kind != ir::ValueKind::kConstant) return nullptr;
  const DType dtype = value.type.dtype;
  const int64_t count = ir::num_elements(value.type.shape).constant;
  if (dtype != DType::kI64 && dtype != DType::kI32 && dtype != DType::kBool) return nullptr;
  if (count > kMaxKnownElements) return nullptr;
  KnownInts known{dtype, ir::at(value.type.shape, 1), {}};
  const std::vector<std::byte>& bytes = model_.constants[static_cast<size_t>(value.constant)].bytes;
  for (int64_t i = 0; i < count; i++)
    known.values.push_back(integer_at(bytes, dtype, static_cast<size_t>(i)));
  (*entry)->known = std::move(known);
  return &*(*entry)->known;
}

Expected<std::vector<ValueId>> Builder::emit(ir::Op op, const std::optional<std::string>& path) {
  if (auto same = simplify(model_, &op)) return std::vector<ValueId>{*same};
  if (auto folded = fold(&model_, op)) return *folded;
  op.path = path.value_or("");
  auto outputs = ops::append_op(model_, std::move(op));
  if (!outputs) return outputs;
  has_path_.push_back(path.has_value());
  for (ValueId id : *outputs) {
    const ir::Shape& shape = model_.value(id).type.shape;
    if (std::count_if(shape.begin(), shape.end(), [](ir::Dim d) { return !d.is_static(); }) > 1) {
      return user_error("the result " + to_string(shape) + " depends on the batch size in two dims",
                        "every sample must be computed by itself");
    }
  }
  return outputs;
}

void Builder::name_value(ValueId id, const std::string& name) {
  const ir::Value& value = model_.value(id);
  if (value.kind == ir::ValueKind::kInput || value.kind == ir::ValueKind::kParameter) return;
  if (named_.insert(id.value).second) model_.value(id).name = name;
}

void Builder::keep_buffers() {
  std::set<int32_t> read;
  for (const ir::Op& op : model_.ops) {
    for (ValueId id : op.inputs) read.insert(id.value);
  }
  for (const Buffer& kept : buffers_) {
    ir::Value& value = model_.value(kept.value);
    if (!read.count(kept.value.value) || !ir::is_float(value.type.dtype)) continue;
    value.kind = ir::ValueKind::kParameter;
    value.constant = -1;
    value.param = ir::ParamId(static_cast<int64_t>(model_.params.size()));
    ir::Parameter buffer;
    buffer.name = value.name;
    buffer.value = kept.value;
    buffer.type = value.type;
    buffer.trainable = false;
    buffer.is_buffer = true;
    buffer.initializer = kept.initializer;
    buffer.transposed = kept.transposed;
    model_.params.push_back(std::move(buffer));
  }
}

Expected<void> Builder::finish() {
  for (const std::string& name : graph_.outputs) {
    auto id = value(name);
    if (!id) return tl::make_unexpected(id.error());
    // An Identity that made the output is gone; its name is what users know.
    ir::Value& value = model_.value(*id);
    const bool first = std::find(model_.outputs.begin(), model_.outputs.end(), *id) ==
                       model_.outputs.end();
    if (first && value.kind == ir::ValueKind::kComputed) value.name = name;
    model_.outputs.push_back(*id);
  }
  fill_paths();
  return {};
}

// Ops without a path take that of the parameters they read, else of their consumers, else of their
// producers.
void Builder::fill_paths() {
  std::vector<ir::Op>& ops = model_.ops;
  for (size_t i = 0; i < ops.size(); i++) {
    if (has_path_[i]) continue;
    std::set<std::string> modules;
    for (ValueId id : ops[i].inputs) {
      if (id.valid() && model_.value(id).param.valid()) {
        modules.insert(module_of(model_.params[model_.value(id).param.index()].name));
      }
    }
    if (modules.size() != 1) continue;
    ops[i].path = *modules.begin();
    has_path_[i] = true;
  }
  const auto consumers = model_.consumers();
  for (size_t i = ops.size(); i-- > 0;) {
    if (has_path_[i]) continue;
    std::set<std::string> paths;
    bool all_known = true;
    for (ValueId out : ops[i].outputs) {
      for (ir::OpId user : consumers[out.index()]) {
        all_known = all_known && has_path_[user.index()];
        paths.insert(ops[user.index()].path);
      }
    }
    if (!all_known || paths.size() != 1) continue;
    ops[i].path = *paths.begin();
    has_path_[i] = true;
  }
  for (size_t i = 0; i < ops.size(); i++) {
    for (size_t k = 0; k < ops[i].inputs.size() && !has_path_[i]; k++) {
      const ValueId id = ops[i].inputs[k];
      if (!id.valid() || !model_.value(id).producer.valid()) continue;
      const size_t from = model_.value(id).producer.index();
      if (!has_path_[from]) continue;
      ops[i].path = ops[from].path;
      has_path_[i] = true;
    }
  }
}

}  // namespace piper::frontend
