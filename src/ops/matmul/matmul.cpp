// MatMul: c = alpha * op(a) op(b) over batch dims that broadcast; trans_a and trans_b say how the operands are stored.

#include <algorithm>

#include "ops/import_helpers.h"
#include "ops/op.h"

namespace piper::ops {

namespace {

bool flag(const Attrs& attrs, const char* name) { return attrs.i(name) != 0; }

Expected<std::vector<TensorType>> infer_matmul(const InferInput& in) {
  const TensorType& a = in.type(0);
  const TensorType& b = in.type(1);
  size_t ra = a.shape.size(), rb = b.shape.size();
  if (ra < 2 || rb < 2 || a.dtype != b.dtype) {
    return support::user_error("MatMul needs two matrices of one type, got " + to_string(a) + " and " + to_string(b));
  }
  bool ta = flag(in.attrs, "trans_a"), tb = flag(in.attrs, "trans_b");
  Dim m = a.shape[ta ? ra - 1 : ra - 2], k = a.shape[ta ? ra - 2 : ra - 1];
  Dim k_b = b.shape[tb ? rb - 1 : rb - 2], n = b.shape[tb ? rb - 2 : rb - 1];
  if (k != k_b) {
    return support::user_error("MatMul over " + to_string(k) + " and " + to_string(k_b) + " elements: " + to_string(a) +
                               " and " + to_string(b));
  }
  auto batch = broadcast(Shape(a.shape.begin(), a.shape.end() - 2), Shape(b.shape.begin(), b.shape.end() - 2));
  if (!batch) return tl::make_unexpected(batch.error());
  batch->push_back(m);
  batch->push_back(n);
  return std::vector<TensorType>{{a.dtype, *batch}};
}

Attrs product_attrs(bool trans_a, bool trans_b, double alpha) {
  return {{"alpha", alpha}, {"trans_a", int64_t{trans_a}}, {"trans_b", int64_t{trans_b}}};
}

// [rows, last] of a value of any rank.
ValueId flatten(GradientBuilder& g, ValueId value) {
  const Shape shape = g.type(value).shape;
  Dim rows = ir::num_elements(Shape(shape.begin(), shape.end() - 1));
  return g.emit("Reshape", {value}, {{"shape", Shape{rows, shape.back()}}});
}

void gradient_matmul(GradientBuilder& g) {
  ValueId dc = g.grad(0);
  if (!dc.valid()) return;
  const Attrs attrs = g.op().attrs;
  bool ta = flag(attrs, "trans_a"), tb = flag(attrs, "trans_b");
  double alpha = attrs.f("alpha", 1);
  ValueId a = g.input(0), b = g.input(1);
  if (g.wants(0)) {
    ValueId da = ta ? g.emit("MatMul", {b, dc}, product_attrs(tb, true, alpha))
                    : g.emit("MatMul", {dc, b}, product_attrs(false, !tb, alpha));
    g.add_grad(0, g.sum_to(da, a));
  }
  if (g.wants(1)) {
    // One weight for all of a's batch: one product over all rows, instead of one a batch and their sum.
    if (!ta && g.type(b).shape.size() == 2 && g.type(a).shape.size() > 2) {
      a = flatten(g, a);
      dc = flatten(g, dc);
    }
    ValueId db = tb ? g.emit("MatMul", {dc, a}, product_attrs(true, ta, alpha))
                    : g.emit("MatMul", {a, dc}, product_attrs(!ta, false, alpha));
    g.add_grad(1, g.sum_to(db, g.input(1)));
  }
}

double flops_matmul(const CostInput& in) {
  const std::vector<int64_t>& a = in.inputs[0];
  int64_t k = a[flag(in.attrs, "trans_a") ? a.size() - 2 : a.size() - 1];
  return 2.0 * static_cast<double>(k) * static_cast<double>(ir::num_elements(in.outputs[0]));
}

// The contracted dim holds the samples, or every row meets every other sample's column.
bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs) {
  const Shape& a = inputs[0].shape;
  if (!a[flag(attrs, "trans_a") ? a.size() - 2 : a.size() - 1].is_static()) return true;
  return std::count_if(outputs[0].shape.begin(), outputs[0].shape.end(), [](Dim d) { return !d.is_static(); }) > 1;
}

// A vector is a row on the left and a column on the right; the dim that was added goes away again.
Expected<void> import_matmul(ImportContext& c) {
  ValueId a = c.input(0), b = c.input(1);
  const Shape shape_a = c.type(a).shape, shape_b = c.type(b).shape;
  if (shape_a.empty() || shape_b.empty()) return support::user_error("MatMul of a scalar");
  bool vector_a = shape_a.size() == 1, vector_b = shape_b.size() == 1;
  if (vector_a) a = c.emit("Reshape", {a}, {{"shape", Shape{Dim(1), shape_a[0]}}});
  if (vector_b) b = c.emit("Reshape", {b}, {{"shape", Shape{shape_b[0], Dim(1)}}});
  ValueId y = c.emit("MatMul", {a, b}, product_attrs(false, false, 1));
  if (vector_a || vector_b) {
    Shape shape = c.type(y).shape;
    if (vector_b) shape.pop_back();
    if (vector_a) shape.erase(shape.end() - (vector_b ? 1 : 2));
    y = c.emit("Reshape", {y}, {{"shape", shape}});
  }
  c.set_output(0, y);
  return {};
}

}  // namespace

extern const OpDef kMatMulOp{
    .name = "MatMul",
    .infer = infer_matmul,
    .gradient = gradient_matmul,
    .why_no_gradient = nullptr,
    .flops = flops_matmul,
    .imports = {{"MatMul", "", kFirstOpset, kLastOpset, import_matmul}},
    .accumulates = 1,
    .couples_samples = couples,
};

}  // namespace piper::ops
