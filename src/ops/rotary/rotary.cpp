// Rotary positions: pairs (x1, x2) of the last dim are turned by an angle, y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin.
// A pair is (i, i + d/2), or neighbours with `interleaved`; `inverse` turns back, which is also the gradient.

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

Expected<std::vector<TensorType>> infer_rotary(const InferInput& in) {
  const TensorType& x = in.type(0);
  const TensorType& cos = in.type(1);
  auto fail = [&] {
    return support::user_error("cos " + to_string(cos) + " and sin " + to_string(in.type(2)) + " do not fit x " +
                               to_string(x) + ": its last dim is twice theirs, the others broadcast");
  };
  if (x.shape.empty() || !x.shape.back().is_static() || x.shape.back().constant % 2 || cos != in.type(2)) return fail();
  Shape half = x.shape;
  half.back() = Dim(x.shape.back().constant / 2);
  if (cos.shape.empty() || cos.dtype != x.dtype || cos.shape.back() != half.back()) return fail();
  auto all = broadcast(cos.shape, half);
  if (!all || *all != half) return fail();
  return std::vector<TensorType>{x};
}

// The first or second elements of all pairs of x.
ValueId side(GradientBuilder& g, ValueId x, bool second) {
  Shape shape = g.type(x).shape;
  const bool interleaved = g.op().attrs.i("interleaved") != 0;
  const int64_t half = shape.back().constant / 2;
  std::vector<int64_t> starts(shape.size(), 0), steps(shape.size(), 1);
  starts.back() = !second ? 0 : interleaved ? 1 : half;
  steps.back() = interleaved ? 2 : 1;
  shape.back() = Dim(half);
  return g.emit("Slice", {x}, {{"starts", starts}, {"steps", steps}, {"shape", shape}});
}

// For angles that are trained: dcos = dy1 x1 + dy2 x2 and dsin = dy2 x1 - dy1 x2, summed where they were broadcast.
void gradient_of_angles(GradientBuilder& g, ValueId dy) {
  ValueId x1 = side(g, g.input(0), false), x2 = side(g, g.input(0), true);
  ValueId d1 = side(g, dy, false), d2 = side(g, dy, true);
  if (g.wants(1)) {
    ValueId dcos = g.emit("Add", {g.emit("Mul", {d1, x1}), g.emit("Mul", {d2, x2})});
    g.add_grad(1, g.sum_to(dcos, g.input(1)));
  }
  if (g.wants(2)) {
    ValueId plus = g.emit("Mul", {d2, x1}), minus = g.emit("Mul", {d1, x2});
    if (g.op().attrs.i("inverse")) std::swap(plus, minus);
    g.add_grad(2, g.sum_to(g.emit("Sub", {plus, minus}), g.input(2)));
  }
}

void gradient_rotary(GradientBuilder& g) {
  ValueId dy = g.grad(0);
  if (!dy.valid()) return;
  Attrs attrs{{"interleaved", g.op().attrs.i("interleaved")}, {"inverse", int64_t{g.op().attrs.i("inverse") == 0}}};
  if (g.wants(0)) g.add_grad(0, g.emit("Rotary", {dy, g.input(1), g.input(2)}, attrs));
  if (g.wants(1) || g.wants(2)) gradient_of_angles(g, dy);
}

double flops_rotary(const CostInput& in) { return 3 * flops_per_element(in); }

ValueId reshape(ImportContext& c, ValueId x, const Shape& shape) { return c.emit("Reshape", {x}, {{"shape", shape}}); }

ValueId slice_last(ImportContext& c, ValueId x, int64_t start, int64_t end) {
  Shape shape = c.type(x).shape;
  std::vector<int64_t> starts(shape.size(), 0), steps(shape.size(), 1);
  starts.back() = start;
  shape.back() = Dim(end - start);
  return c.emit("Slice", {x}, {{"starts", starts}, {"steps", steps}, {"shape", shape}});
}

// The cos or sin table as [B or 1, 1, S, d/2], one row a position.
ValueId table(ImportContext& c, size_t i, int64_t half) {
  ValueId value = c.input(i);
  if (c.has_input(3)) value = c.emit("Gather", {value, c.input(3)}, {{"axis", int64_t{0}}});
  Shape shape = c.type(value).shape;
  if (shape.size() == 3 && shape.back() != Dim(half) && shape.back().constant > half) {
    value = slice_last(c, value, 0, half);
    shape.back() = Dim(half);
  }
  if (shape.size() == 3) shape.insert(shape.begin() + 1, Dim(1));
  return reshape(c, value, shape);
}

Expected<void> import_rotary(ImportContext& c) {
  ValueId x = c.input(0);
  const Shape original = c.type(x).shape;
  const int64_t heads = c.attrs().i("num_heads");
  const bool flat = original.size() == 3;  // [B, S, H * d]
  if (flat && (heads <= 0 || !original[2].is_static() || original[2].constant % heads != 0)) {
    return support::user_error("a RotaryEmbedding of " + to_string(c.type(x)) +
                               " needs num_heads, a divisor of its last dim");
  }
  if (!flat && original.size() != 4) return support::user_error("RotaryEmbedding of " + to_string(c.type(x)));
  if (flat) {
    x = reshape(c, x, {original[0], original[1], Dim(heads), Dim(original[2].constant / heads)});
    x = c.emit("Transpose", {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }
  const int64_t width = c.type(x).shape.back().constant;
  int64_t turned = c.attrs().i("rotary_embedding_dim");
  if (turned == 0) turned = width;
  if (turned < 0 || turned > width || turned % 2) {
    return support::user_error("rotary_embedding_dim " + std::to_string(turned) + " of a head of " +
                               std::to_string(width));
  }
  ValueId head = turned < width ? slice_last(c, x, 0, turned) : x;
  Attrs attrs{{"interleaved", c.attrs().i("interleaved")}, {"inverse", int64_t{0}}};
  ValueId y = c.emit("Rotary", {head, table(c, 1, turned / 2), table(c, 2, turned / 2)}, attrs);
  if (turned < width) {
    y = c.emit("Concat", {y, slice_last(c, x, turned, width)}, {{"axis", int64_t{3}}});
  }
  if (flat) {
    y = c.emit("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    y = reshape(c, y, original);
  }
  c.set_output(0, y);
  return {};
}

}  // namespace

extern const OpDef kRotaryOp{
    .name = "Rotary",
    .infer = infer_rotary,
    .gradient = gradient_rotary,
    .why_no_gradient = nullptr,
    .flops = flops_rotary,
    .imports = {{"RotaryEmbedding", "", 23, kLastOpset, import_rotary}},
};

}  // namespace piper::ops
