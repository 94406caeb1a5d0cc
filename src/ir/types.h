// Element types and shapes. A dim is linear in the batch size B (`constant + batch * B`), so that one model serves
// every local batch size that the microbatches and data axes cut; `at(b)` gives the number for b samples.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piper::ir {

enum class DType { kF32, kF64, kBF16, kI64, kI32, kBool, kU8 };

int64_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);  // "f32", "i64", "bool", ...
bool dtype_parse(std::string_view name, DType* out);
inline bool is_float(DType d) { return d == DType::kF32 || d == DType::kF64 || d == DType::kBF16; }

struct Dim {
  int64_t constant = 0;
  int64_t batch = 0;  // factor of B

  constexpr Dim() = default;
  constexpr Dim(int64_t c) : constant(c) {}  // NOLINT: a number is a dim
  constexpr Dim(int64_t c, int64_t b) : constant(c), batch(b) {}
  static constexpr Dim batch_size() { return Dim(0, 1); }
  constexpr int64_t at(int64_t b) const { return constant + batch * b; }
  constexpr bool is_static() const { return batch == 0; }
  friend constexpr bool operator==(const Dim&, const Dim&) = default;
  friend constexpr Dim operator+(Dim a, Dim b) { return Dim(a.constant + b.constant, a.batch + b.batch); }
  friend constexpr Dim operator-(Dim a, Dim b) { return Dim(a.constant - b.constant, a.batch - b.batch); }
};

using Shape = std::vector<Dim>;

std::string to_string(Dim dim);            // "B", "4", "16B"
std::string to_string(const Shape& shape);  // "[B, 64, 160]"
std::vector<int64_t> at(const Shape& shape, int64_t b);
// Number of elements, which must be linear in B (InternalError otherwise: two dims cannot both depend on B).
Dim num_elements(const Shape& shape);
int64_t num_elements(const std::vector<int64_t>& shape);
// The dim that carries the samples: the only one that depends on B, or -1.
int sample_dim(const Shape& shape);

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};
std::string to_string(const TensorType& type);  // "f32[B, 64, 160]"

}  // namespace piper::ir
