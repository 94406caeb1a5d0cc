#include "ir/types.h"

#include "support/error.h"

namespace piper::ir {

namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t size;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kF32, "f32", 4}, {DType::kF64, "f64", 8},   {DType::kBF16, "bf16", 2}, {DType::kI64, "i64", 8},
    {DType::kI32, "i32", 4}, {DType::kBool, "bool", 1}, {DType::kU8, "u8", 1},
};

const DTypeRow& row(DType dtype) {
  for (const DTypeRow& r : kDTypes) {
    if (r.dtype == dtype) return r;
  }
  PIPER_CHECK(false, "dtype without a row");
  return kDTypes[0];
}

}  // namespace

int64_t dtype_size(DType dtype) { return row(dtype).size; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }

bool dtype_parse(std::string_view name, DType* out) {
  for (const DTypeRow& r : kDTypes) {
    if (r.name == name) {
      *out = r.dtype;
      return true;
    }
  }
  return false;
}

std::string to_string(Dim dim) {
  if (dim.batch == 0) return std::to_string(dim.constant);
  std::string text = dim.batch == 1 ? "B" : dim.batch == -1 ? "-B" : std::to_string(dim.batch) + "B";
  if (dim.constant > 0) text += "+";
  if (dim.constant != 0) text += std::to_string(dim.constant);
  return text;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); i++) text += (i > 0 ? ", " : "") + to_string(shape[i]);
  return text + "]";
}

std::vector<int64_t> at(const Shape& shape, int64_t b) {
  std::vector<int64_t> sizes;
  sizes.reserve(shape.size());
  for (Dim dim : shape) sizes.push_back(dim.at(b));
  return sizes;
}

Dim num_elements(const Shape& shape) {
  Dim count = 1;
  for (Dim dim : shape) {
    PIPER_CHECK(count.batch == 0 || dim.batch == 0, "two dims of " + to_string(shape) + " depend on the batch");
    count = Dim(count.constant * dim.constant, count.constant * dim.batch + count.batch * dim.constant);
  }
  return count;
}

int64_t num_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

int sample_dim(const Shape& shape) {
  int found = -1;
  for (size_t i = 0; i < shape.size(); i++) {
    if (shape[i].is_static()) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

std::string to_string(const TensorType& type) { return std::string(dtype_name(type.dtype)) + to_string(type.shape); }

}  // namespace piper::ir
