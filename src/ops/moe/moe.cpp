// Mixture of experts: where each token goes (MoERoute), the way there (MoEDispatch) and back (MoECombine). Between the
// two a row is one (token, choice) pair, and rows of an expert lie together, so that GroupedLinear multiplies them by
// its weight. Only operations on single rows may stand there: which row a token has depends on all tokens of the share.
//
// MoERoute numbers the pairs. Packed (padded = 0): slots 0, 1, ... sorted by expert, equal ones by token, then choice;
// counts says how many each expert has. Padded: expert e has `capacity` slots for each group g, from
// (e * groups + g) * capacity (padded = 1) or (g * experts + e) * capacity (padded = 2). A group is the tokens (dim S)
// of one place of the dims before it. With a capacity, an expert takes that many pairs of a group, the first ones by
// token and then choice, or by choice and then token (choices_first); capacity 0 takes all (padded: S slots). A pair
// that no expert takes, or whose expert does not exist, has slot -1. With `owners` n, counts is a table [n, experts of
// one]: who has the first experts, who the next ones, ..., with zeros behind the last expert.
//
// In ONNX, `piper::MoEDispatch` {num_experts, capacity, choices_first} and `piper::MoECombine` move padded rows
// [experts, groups..., capacity, width] (capacity 0: as many as a group has tokens) of tokens [groups..., tokens,
// width].

#include "ops/import_helpers.h"

namespace piper::ops {

namespace {

using support::user_error;

bool is_index(const TensorType& t) { return t.dtype == DType::kI64 || t.dtype == DType::kI32; }

Expected<std::vector<TensorType>> infer_route(const InferInput& in) {
  const TensorType& expert = in.type(0);
  const int64_t experts = in.attrs.i("experts");
  if (!is_index(expert) || expert.shape.size() < 2)
    return user_error("it routes by " + to_string(expert) + ", not by integers [..., tokens, choices]");
  if (experts < 1) return user_error("it has " + std::to_string(experts) + " experts");
  if (in.attrs.i("capacity") < 0) return user_error("its capacity is " + std::to_string(in.attrs.i("capacity")));
  const int64_t owners = in.attrs.i("owners");
  if (owners < 0) return user_error("its experts have " + std::to_string(owners) + " owners");
  const Shape counts = owners == 0 ? Shape{experts} : Shape{owners, (experts + owners - 1) / owners};
  return std::vector<TensorType>{{DType::kI64, expert.shape}, {DType::kI64, counts}};
}

// x[..., D], slot[..., K] and gates like slot.
Expected<void> check_tokens(const Shape& x, const TensorType& slot, const TensorType* gates, DType dtype) {
  const bool fits = !x.empty() && slot.shape.size() == x.size() && slot.dtype == DType::kI64 &&
                    slot.shape.back().is_static() && std::equal(x.begin(), x.end() - 1, slot.shape.begin());
  if (!fits) return user_error("slots " + to_string(slot) + " do not fit tokens " + ir::to_string(x));
  if (gates && (gates->shape != slot.shape || gates->dtype != dtype)) {
    return user_error("gates " + to_string(*gates) + " do not fit slots " + to_string(slot));
  }
  return {};
}

Expected<std::vector<TensorType>> infer_dispatch(const InferInput& in) {
  const TensorType& x = in.type(0);
  if (auto ok = check_tokens(x.shape, in.type(1), in.present(2) ? &in.type(2) : nullptr, x.dtype); !ok)
    return tl::make_unexpected(ok.error());
  const Shape rows = in.attrs.shape("shape");
  if (rows.size() != 2 || rows[1] != x.shape.back())
    return user_error("rows " + ir::to_string(rows) + " do not fit tokens " + to_string(x));
  return std::vector<TensorType>{{x.dtype, rows}};
}

Expected<std::vector<TensorType>> infer_combine(const InferInput& in) {
  const TensorType &rows = in.type(0), &slot = in.type(1);
  if (rows.shape.size() != 2 || slot.shape.empty())
    return user_error("it combines rows " + to_string(rows) + " by slots " + to_string(slot));
  Shape y = slot.shape;
  y.back() = rows.shape[1];
  if (auto ok = check_tokens(y, slot, in.present(2) ? &in.type(2) : nullptr, rows.dtype); !ok)
    return tl::make_unexpected(ok.error());
  return std::vector<TensorType>{{rows.dtype, y}};
}

Expected<std::vector<TensorType>> infer_gate_grad(const InferInput& in) {
  const TensorType &rows = in.type(0), &slot = in.type(1), &x = in.type(2);
  if (auto ok = check_tokens(x.shape, slot, nullptr, x.dtype); !ok) return tl::make_unexpected(ok.error());
  if (rows.shape.size() != 2 || rows.shape[1] != x.shape.back() || rows.dtype != x.dtype) {
    return user_error("rows " + to_string(rows) + " do not fit tokens " + to_string(x));
  }
  return std::vector<TensorType>{{x.dtype, slot.shape}};
}

// Dispatch and combine are each other's transpose.
void gradient_dispatch(GradientBuilder& b) {
  const ValueId drows = b.grad(0);
  if (!drows.valid()) return;
  if (b.wants(0)) b.add_grad(0, b.emit("MoECombine", {drows, b.input(1), b.input(2)}));
  if (b.input(2).valid() && b.wants(2)) b.add_grad(2, b.emit("MoEGateGrad", {drows, b.input(1), b.input(0)}));
}

void gradient_combine(GradientBuilder& b) {
  const ValueId dy = b.grad(0);
  if (!dy.valid()) return;
  if (b.wants(0))
    b.add_grad(0, b.emit("MoEDispatch", {dy, b.input(1), b.input(2)}, {{"shape", b.type(b.input(0)).shape}}));
  if (b.input(2).valid() && b.wants(2)) b.add_grad(2, b.emit("MoEGateGrad", {b.input(0), b.input(1), dy}));
}

double flops_pairs(const std::vector<int64_t>& slot, int64_t width) {
  return 2.0 * static_cast<double>(ir::num_elements(slot)) * static_cast<double>(width);
}
double flops_combine(const CostInput& in) { return flops_pairs(in.inputs[1], in.outputs[0].back()); }
double flops_gate_grad(const CostInput& in) { return flops_pairs(in.inputs[1], in.inputs[2].back()); }

// With a capacity, who comes first in a group of several samples takes the place of others.
bool couples(const Attrs& attrs, const std::vector<TensorType>& inputs, const std::vector<TensorType>&) {
  const Shape& shape = inputs[0].shape;
  return attrs.i("capacity") > 0 && !shape[shape.size() - 2].is_static();
}

Expected<void> import_dispatch(ImportContext& c) {
  const ValueId x = c.input(0), index = c.input(1);
  const Shape tokens = c.type(x).shape, pairs = c.type(index).shape;
  if (pairs.size() < 2 || tokens.size() != pairs.size()) {
    return user_error("it takes tokens [groups..., tokens, width] and experts [groups..., tokens, choices], got " +
                      to_string(c.type(x)) + " and " + to_string(c.type(index)));
  }
  const int64_t experts = c.attrs().i("num_experts"), capacity = c.attrs().i("capacity");
  if (experts < 1 || capacity < 0)
    return user_error("it has " + std::to_string(experts) + " experts with a capacity of " + std::to_string(capacity));
  Shape rows(tokens.begin(), tokens.end() - 2);
  rows.insert(rows.begin(), Dim(experts));
  rows.push_back(capacity > 0 ? Dim(capacity) : tokens[tokens.size() - 2]);
  auto count = count_elements(rows);
  if (!count) return tl::make_unexpected(count.error());
  rows.push_back(tokens.back());
  const auto routed = c.emit_all("MoERoute", {index},
                                 {{"experts", experts},
                                  {"capacity", capacity},
                                  {"choices_first", c.attrs().i("choices_first")},
                                  {"padded", int64_t{1}}});
  const ValueId flat = c.emit("MoEDispatch", {x, routed[0]}, {{"shape", Shape{*count, tokens.back()}}});
  c.set_output(0, c.emit("Reshape", {flat}, {{"shape", rows}}));
  if (c.num_outputs() > 1) c.set_output(1, routed[0]);
  return {};
}

Expected<void> import_combine(ImportContext& c) {
  const ValueId rows = c.input(0);
  const Shape shape = c.type(rows).shape;
  if (shape.size() < 2) return user_error("it combines " + to_string(c.type(rows)));
  auto count = count_elements(Shape(shape.begin(), shape.end() - 1));
  if (!count) return tl::make_unexpected(count.error());
  std::vector<ValueId> inputs{c.emit("Reshape", {rows}, {{"shape", Shape{*count, shape.back()}}}), c.input(1)};
  if (c.has_input(2)) inputs.push_back(c.input(2));
  c.set_output(0, c.emit("MoECombine", inputs));
  return {};
}

constexpr const char* kDomain = "piper";

}  // namespace

const OpDef kMoECombineOp = {"MoECombine", infer_combine, gradient_combine,
                             nullptr,      flops_combine, {{"MoECombine", kDomain, 1, kLastOpset, import_combine}}};
const OpDef kMoEDispatchOp = {"MoEDispatch",     infer_dispatch,
                              gradient_dispatch, nullptr,
                              flops_none,        {{"MoEDispatch", kDomain, 1, kLastOpset, import_dispatch}}};
const OpDef kMoEGateGradOp = {"MoEGateGrad", infer_gate_grad, nullptr, kBackwardOnly, flops_gate_grad, {}};
const OpDef kMoERouteOp = {"MoERoute", infer_route, nullptr, kIntegerResult, flops_none, {}, 0, couples};

}  // namespace piper::ops
