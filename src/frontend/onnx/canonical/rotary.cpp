// Rotary positions in the rotate_half form: x cos + concat(-x2, x1) sin, with cos and sin tables
// whose two halves are equal; the op reads one half.

#include <cstring>

#include "frontend/onnx/canonical/canonical.h"

namespace piper::frontend {

using ir::Op;
using ir::ValueId;

namespace {

// Whether value is x[..., start : start + size] of the last dim.
bool is_slice_of_last(const Rewriter& r, ValueId value, ValueId x, int64_t start, int64_t size) {
  const Op* slice = r.producer(value, "Slice");
  if (slice == nullptr || slice->inputs[0] != x) return false;
  std::vector<int64_t> starts = slice->attrs.ints("starts");
  for (int64_t step : slice->attrs.ints("steps")) {
    if (step != 1) return false;
  }
  ir::Shape expected = r.shape(x);
  expected.back() = size;
  if (starts.empty() || starts.back() != start || r.shape(value) != expected) return false;
  starts.pop_back();
  for (int64_t s : starts) {
    if (s != 0) return false;
  }
  return true;
}

bool is_rotated_half(const Rewriter& r, ValueId value, ValueId x) {
  const Op* concat = r.producer(value, "Concat");
  const int64_t rank = static_cast<int64_t>(r.shape(x).size());
  if (concat == nullptr || concat->inputs.size() != 2 || !r.shape(x).back().is_static())
    return false;
  const int64_t axis = concat->attrs.i("axis");
  const int64_t width = r.shape(x).back().constant;
  if ((axis < 0 ? axis + rank : axis) != rank - 1 || width % 2 != 0) return false;
  const Op* neg = r.producer(concat->inputs[0], "Neg");
  return neg != nullptr && is_slice_of_last(r, neg->inputs[0], x, width / 2, width / 2) &&
         is_slice_of_last(r, concat->inputs[1], x, 0, width / 2);
}

bool constant_halves_equal(const ir::Constant& table) {
  if (table.type.shape.empty()) return false;
  const int64_t width = table.type.shape.back().constant;
  if (width <= 0 || width % 2 != 0) return false;
  const size_t half = static_cast<size_t>(width / 2 * ir::dtype_size(table.type.dtype));
  for (size_t at = 0; at < table.bytes.size(); at += 2 * half) {
    if (std::memcmp(table.bytes.data() + at, table.bytes.data() + at + half, half) != 0)
      return false;
  }
  return true;
}

// Tables that are computed: elementwise from a concatenation of a value with itself.
bool computed_halves_equal(const Rewriter& r, ValueId value) {
  for (const char* kind : {"Cos", "Sin", "Cast"}) {
    if (const Op* op = r.producer(value, kind)) return computed_halves_equal(r, op->inputs[0]);
  }
  if (const Op* reshape = r.producer(value, "Reshape")) {
    const ir::Shape &from = r.shape(reshape->inputs[0]), &to = r.shape(value);
    return !from.empty() && !to.empty() && from.back() == to.back() &&
           computed_halves_equal(r, reshape->inputs[0]);
  }
  if (const Op* mul = r.producer(value, "Mul")) {
    return r.scalar(mul->inputs[1]) && computed_halves_equal(r, mul->inputs[0]);
  }
  const Op* concat = r.producer(value, "Concat");
  if (concat == nullptr || concat->inputs.size() != 2 || concat->inputs[0] != concat->inputs[1])
    return false;
  const int64_t axis = concat->attrs.i("axis"), rank = static_cast<int64_t>(r.shape(value).size());
  return axis == -1 || axis == rank - 1;
}

ValueId half_of_table(Rewriter& r, ValueId table) {
  const ir::Constant* constant = r.constant(table);
  if (constant != nullptr ? !constant_halves_equal(*constant) : !computed_halves_equal(r, table))
    return ValueId();
  if (constant != nullptr) {
    if (auto known = r.memo().find(table.value); known != r.memo().end()) return known->second;
  }
  ir::Shape shape = r.shape(table);
  if (shape.empty() || !shape.back().is_static()) return ValueId();
  shape.back() = shape.back().constant / 2;
  const ValueId half = r.emit("Slice", {table},
                              {{"starts", std::vector<int64_t>(shape.size(), 0)},
                               {"steps", std::vector<int64_t>(shape.size(), 1)},
                               {"shape", shape}});
  if (constant != nullptr) r.memo()[table.value] = half;
  return half;
}

// Tries op = x * cos + rotated * sin for one assignment of the operands.
bool match_terms(Rewriter& r, const Op& op, ValueId x, ValueId cos, ValueId rotated, ValueId sin) {
  if (r.type(x) != r.type(op.outputs[0]) || !is_rotated_half(r, rotated, x)) return false;
  const ValueId cos_half = half_of_table(r, cos), sin_half = half_of_table(r, sin);
  if (!cos_half.valid() || !sin_half.valid()) return false;
  return r.replace(op, "Rotary", {x, cos_half, sin_half},
                   {{"interleaved", int64_t{0}}, {"inverse", int64_t{0}}});
}

}  // namespace

bool match_rotary(Rewriter& r, const Op& op) {
  if (op.kind != "Add") return false;
  for (size_t i = 0; i < 2; i++) {
    const Op* plain = r.producer(op.inputs[i], "Mul");
    const Op* turned = r.producer(op.inputs[1 - i], "Mul");
    if (plain == nullptr || turned == nullptr) return false;
    for (size_t a = 0; a < 2; a++) {
      for (size_t b = 0; b < 2; b++) {
        if (match_terms(r, op, plain->inputs[a], plain->inputs[1 - a], turned->inputs[b],
                        turned->inputs[1 - b])) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace piper::frontend
