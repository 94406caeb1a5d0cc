#include "frontend/onnx/known_ints.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <map>

#include "ops/op.h"

namespace piper::frontend {

using ir::Dim;
using Result = std::optional<KnownInts>;

bool KnownInts::is_static() const {
  return std::all_of(values.begin(), values.end(), [](Dim d) { return d.is_static(); });
}

std::vector<int64_t> KnownInts::numbers() const {
  std::vector<int64_t> numbers;
  for (Dim d : values) numbers.push_back(d.constant);
  return numbers;
}

namespace {

bool has(const KnownNode& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i] != nullptr;
}
const KnownInts& in(const KnownNode& node, size_t i) { return *node.inputs[i]; }

// The sign of a dim that is the same for every batch size of at least one; nothing when it changes.
std::optional<int> sign(Dim d) {
  const int64_t first = d.at(1);
  auto sign_of = [](int64_t v) { return v > 0 ? 1 : v < 0 ? -1 : 0; };
  if (d.batch == 0) return sign_of(first);
  if (d.batch > 0 && first > 0) return 1;
  if (d.batch < 0 && first < 0) return -1;
  return std::nullopt;
}

std::optional<Dim> multiply(Dim a, Dim b) {
  if (!a.is_static() && !b.is_static()) return std::nullopt;
  if (!a.is_static()) std::swap(a, b);
  Dim product;
  if (__builtin_mul_overflow(a.constant, b.constant, &product.constant) ||
      __builtin_mul_overflow(a.constant, b.batch, &product.batch)) {
    return std::nullopt;
  }
  return product;
}

std::optional<Dim> divide(Dim a, Dim b) {
  if (!b.is_static() || b.constant == 0) {
    if (a == b && a.constant == 0) return Dim(1);  // B / B
    if (!b.is_static() && b.constant == 0 && a.constant == 0 && a.batch % b.batch == 0)
      return Dim(a.batch / b.batch);
    return std::nullopt;
  }
  if (a.is_static()) {
    if (a.constant == INT64_MIN && b.constant == -1) return std::nullopt;
    return Dim(a.constant / b.constant);
  }
  if (a.constant % b.constant != 0 || a.batch % b.constant != 0) return std::nullopt;
  return Dim(a.constant / b.constant, a.batch / b.constant);
}

using Binary = std::function<std::optional<Dim>(Dim, Dim)>;

// Numpy broadcasting over small shapes.
Result broadcast(const KnownInts& a, const KnownInts& b, ir::DType dtype, const Binary& apply) {
  const size_t rank = std::max(a.shape.size(), b.shape.size());
  KnownInts out{dtype, std::vector<int64_t>(rank), {}};
  auto size = [rank](const KnownInts& v, size_t dim) {
    return dim + v.shape.size() < rank ? int64_t{1} : v.shape[dim + v.shape.size() - rank];
  };
  for (size_t d = 0; d < rank; d++) {
    const int64_t m = size(a, d), n = size(b, d);
    if (m != n && m != 1 && n != 1) return std::nullopt;
    out.shape[d] = m == 1 ? n : m;
  }
  const int64_t count = ir::num_elements(out.shape);
  if (count > kMaxKnownElements) return std::nullopt;
  for (int64_t flat = 0; flat < count; flat++) {
    int64_t rest = flat, at_a = 0, at_b = 0, stride_a = 1, stride_b = 1;
    for (size_t d = rank; d-- > 0;) {
      const int64_t index = rest % out.shape[d];
      rest /= out.shape[d];
      if (size(a, d) != 1) at_a += index * stride_a;
      if (size(b, d) != 1) at_b += index * stride_b;
      stride_a *= size(a, d);
      stride_b *= size(b, d);
    }
    auto value = apply(a.values[at_a], b.values[at_b]);
    if (!value) return std::nullopt;
    out.values.push_back(*value);
  }
  return out;
}

Result binary(const KnownNode& node, const Binary& apply) {
  if (!has(node, 0) || !has(node, 1)) return std::nullopt;
  Result out = broadcast(in(node, 0), in(node, 1), in(node, 0).dtype, apply);
  for (size_t i = 2; out && i < node.inputs.size(); i++)
    out = broadcast(*out, in(node, i), out->dtype, apply);
  return out;
}

Result compare(const KnownNode& node, const std::function<bool(int)>& apply) {
  if (!has(node, 0) || !has(node, 1)) return std::nullopt;
  return broadcast(in(node, 0), in(node, 1), ir::DType::kBool,
                   [&](Dim a, Dim b) -> std::optional<Dim> {
                     std::optional<int> s = sign(a - b);
                     return s ? std::optional<Dim>(Dim(apply(*s) ? 1 : 0)) : std::nullopt;
                   });
}

Result evaluate_equal(const KnownNode& node) {
  if (!has(node, 0) || !has(node, 1)) return std::nullopt;
  return broadcast(in(node, 0), in(node, 1), ir::DType::kBool,
                   [](Dim a, Dim b) -> std::optional<Dim> {
                     const Dim d = a - b;
                     if (d.is_static()) return Dim(d.constant == 0 ? 1 : 0);
                     // Zero for some batch size of at least one?
                     if (-d.constant % d.batch == 0 && -d.constant / d.batch >= 1)
                       return std::nullopt;
                     return Dim(0);
                   });
}

Result evaluate_minmax(const KnownNode& node, int keep_first_when) {
  return binary(node, [keep_first_when](Dim a, Dim b) -> std::optional<Dim> {
    std::optional<int> s = sign(a - b);
    if (!s) return std::nullopt;
    return *s == keep_first_when ? a : b;
  });
}

Result evaluate_where(const KnownNode& node) {
  if (!has(node, 0) || !has(node, 1) || !has(node, 2) || !in(node, 0).is_static())
    return std::nullopt;
  // Two steps of broadcasting: keep b's values where the condition is false, by position.
  const KnownInts& condition = in(node, 0);
  Result shape = broadcast(condition, in(node, 1), ir::DType::kBool, [](Dim c, Dim) { return c; });
  if (!shape) return std::nullopt;
  Result full = broadcast(*shape, in(node, 2), ir::DType::kBool, [](Dim c, Dim) { return c; });
  if (!full) return std::nullopt;
  Result yes = broadcast(*full, in(node, 1), in(node, 1).dtype, [](Dim, Dim a) { return a; });
  Result no = broadcast(*full, in(node, 2), in(node, 1).dtype, [](Dim, Dim b) { return b; });
  if (!yes || !no) return std::nullopt;
  for (size_t i = 0; i < full->values.size(); i++) {
    if (full->values[i].constant == 0) yes->values[i] = no->values[i];
  }
  return yes;
}

Result evaluate_gather(const KnownNode& node) {
  if (!has(node, 0) || !has(node, 1) || in(node, 0).shape.size() != 1 || !in(node, 1).is_static())
    return std::nullopt;
  const KnownInts& data = in(node, 0);
  KnownInts out{data.dtype, in(node, 1).shape, {}};
  for (int64_t index : in(node, 1).numbers()) {
    if (index < 0) index += data.shape[0];
    if (index < 0 || index >= data.shape[0]) return std::nullopt;
    out.values.push_back(data.values[index]);
  }
  return out;
}

Result evaluate_slice(const KnownNode& node) {
  if (in(node, 0).shape.size() != 1) return std::nullopt;
  const KnownInts& data = in(node, 0);
  const std::vector<int64_t> starts = node.attrs.ints("starts"), ends = node.attrs.ints("ends");
  const bool attributes = starts.size() == 1 && ends.size() == 1;  // until opset 9
  if (!attributes && (!has(node, 1) || !has(node, 2))) return std::nullopt;
  for (size_t i = 1; i < node.inputs.size(); i++) {
    if (has(node, i) && (!in(node, i).is_static() || in(node, i).values.size() != 1))
      return std::nullopt;
  }
  const int64_t size = data.shape[0];
  const int64_t step = has(node, 4) ? in(node, 4).values[0].constant : 1;
  int64_t start = attributes ? starts[0] : in(node, 1).values[0].constant;
  int64_t end = attributes ? ends[0] : in(node, 2).values[0].constant;
  if (step == 0) return std::nullopt;
  if (start < 0) start += size;
  if (end < 0 && end > INT64_MIN + size) end += size;
  start = std::clamp<int64_t>(start, 0, step > 0 ? size : size - 1);
  end = std::clamp<int64_t>(end, step > 0 ? 0 : -1, size);
  KnownInts out{data.dtype, {0}, {}};
  for (int64_t i = start; step > 0 ? i < end : i > end; i += step)
    out.values.push_back(data.values[i]);
  out.shape[0] = static_cast<int64_t>(out.values.size());
  return out;
}

Result evaluate_concat(const KnownNode& node) {
  KnownInts out{ir::DType::kI64, {0}, {}};
  for (const KnownInts* input : node.inputs) {
    if (input == nullptr || input->shape.size() != 1) return std::nullopt;
    out.dtype = input->dtype;
    out.values.insert(out.values.end(), input->values.begin(), input->values.end());
  }
  out.shape[0] = static_cast<int64_t>(out.values.size());
  return out;
}

// Axes come as an attribute in older opsets, as an input in newer ones.
std::optional<std::vector<int64_t>> axes_of(const KnownNode& node) {
  if (node.attrs.has("axes")) return node.attrs.ints("axes");
  if (!has(node, 1)) return std::vector<int64_t>{};
  if (!in(node, 1).is_static()) return std::nullopt;
  return in(node, 1).numbers();
}

Result evaluate_unsqueeze(const KnownNode& node) {
  auto axes = axes_of(node);
  if (!axes || axes->empty()) return std::nullopt;
  KnownInts out = in(node, 0);
  const size_t rank = out.shape.size() + axes->size();
  for (int64_t& axis : *axes) axis = ops::normalize_dim(axis, rank);
  std::sort(axes->begin(), axes->end());
  for (int64_t axis : *axes) {
    if (axis < 0 || axis > static_cast<int64_t>(out.shape.size())) return std::nullopt;
    out.shape.insert(out.shape.begin() + axis, 1);
  }
  return out;
}

Result evaluate_squeeze(const KnownNode& node) {
  auto axes = axes_of(node);
  if (!axes) return std::nullopt;
  KnownInts out = in(node, 0);
  const size_t rank = out.shape.size();
  out.shape.clear();
  for (int64_t& axis : *axes) axis = ops::normalize_dim(axis, rank);
  for (size_t d = 0; d < rank; d++) {
    const int64_t size = in(node, 0).shape[d];
    const bool listed =
        std::find(axes->begin(), axes->end(), static_cast<int64_t>(d)) != axes->end();
    if (listed && size != 1) return std::nullopt;
    if (listed || (axes->empty() && size == 1)) continue;
    out.shape.push_back(size);
  }
  return out;
}

Result evaluate_reshape(const KnownNode& node) {
  if (!has(node, 1) || !in(node, 1).is_static()) return std::nullopt;
  KnownInts out = in(node, 0);
  std::vector<int64_t> target = in(node, 1).numbers();
  const int64_t count = static_cast<int64_t>(out.values.size());
  int64_t known = 1, free = -1;
  for (size_t d = 0; d < target.size(); d++) {
    if (target[d] == 0 && node.attrs.i("allowzero") == 0) {
      if (d >= in(node, 0).shape.size()) return std::nullopt;
      target[d] = in(node, 0).shape[d];
    }
    if (target[d] == -1) {
      if (free >= 0) return std::nullopt;
      free = static_cast<int64_t>(d);
    } else {
      known *= target[d];
    }
  }
  if (free >= 0) {
    if (known == 0 || count % known != 0) return std::nullopt;
    target[free] = count / known;
    known *= target[free];
  }
  if (known != count) return std::nullopt;
  out.shape = std::move(target);
  return out;
}

Result evaluate_cast(const KnownNode& node) {
  KnownInts out = in(node, 0);
  switch (node.attrs.i("to")) {
    case 7:
      out.dtype = ir::DType::kI64;
      return out;
    case 6:
      out.dtype = ir::DType::kI32;
      return out;
    case 9:
      break;
    default:
      return std::nullopt;
  }
  for (Dim& value : out.values) {
    std::optional<int> s = sign(value);
    if (!s) return std::nullopt;
    value = Dim(*s != 0 ? 1 : 0);
  }
  out.dtype = ir::DType::kBool;
  return out;
}

Result evaluate_range(const KnownNode& node) {
  for (size_t i = 0; i < 3; i++) {
    if (!has(node, i) || !in(node, i).is_static() || in(node, i).values.size() != 1)
      return std::nullopt;
  }
  const int64_t start = in(node, 0).values[0].constant, limit = in(node, 1).values[0].constant;
  const int64_t step = in(node, 2).values[0].constant;
  if (step == 0) return std::nullopt;
  KnownInts out{in(node, 0).dtype, {0}, {}};
  for (int64_t v = start; step > 0 ? v < limit : v > limit; v += step) {
    if (static_cast<int64_t>(out.values.size()) == kMaxKnownElements) return std::nullopt;
    out.values.push_back(Dim(v));
  }
  out.shape[0] = static_cast<int64_t>(out.values.size());
  return out;
}

Result evaluate_neg(const KnownNode& node) {
  KnownInts out = in(node, 0);
  for (Dim& value : out.values) value = Dim(0) - value;
  return out;
}

Result evaluate_not(const KnownNode& node) {
  KnownInts out = in(node, 0);
  for (Dim& value : out.values) value = Dim(value.constant == 0 ? 1 : 0);
  return out;
}

Result evaluate_product(const KnownNode& node) {
  auto axes = axes_of(node);
  if (!axes || in(node, 0).shape.size() != 1 ||
      (axes->empty() && node.attrs.i("noop_with_empty_axes") != 0)) {
    return std::nullopt;
  }
  Dim product = 1;
  for (Dim value : in(node, 0).values) {
    auto next = multiply(product, value);
    if (!next) return std::nullopt;
    product = *next;
  }
  const bool keep = node.attrs.i("keepdims", 1) != 0;
  return KnownInts{
      in(node, 0).dtype, keep ? std::vector<int64_t>{1} : std::vector<int64_t>{}, {product}};
}

Result logical(const KnownNode& node, const std::function<bool(bool, bool)>& apply) {
  return binary(node, [&](Dim a, Dim b) -> std::optional<Dim> {
    return Dim(apply(a.constant != 0, b.constant != 0) ? 1 : 0);
  });
}

using Rule = Result (*)(const KnownNode&);

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> table = {
      {"Add",
       [](const KnownNode& n) {
         return binary(n, [](Dim a, Dim b) { return std::optional<Dim>(a + b); });
       }},
      {"And", [](const KnownNode& n) { return logical(n, [](bool a, bool b) { return a && b; }); }},
      {"Cast", evaluate_cast},
      {"Concat", evaluate_concat},
      {"Div", [](const KnownNode& n) { return binary(n, divide); }},
      {"Equal", evaluate_equal},
      {"Gather", evaluate_gather},
      {"Greater", [](const KnownNode& n) { return compare(n, [](int s) { return s > 0; }); }},
      {"GreaterOrEqual",
       [](const KnownNode& n) { return compare(n, [](int s) { return s >= 0; }); }},
      {"Identity", [](const KnownNode& n) { return Result(in(n, 0)); }},
      {"Less", [](const KnownNode& n) { return compare(n, [](int s) { return s < 0; }); }},
      {"LessOrEqual", [](const KnownNode& n) { return compare(n, [](int s) { return s <= 0; }); }},
      {"Max", [](const KnownNode& n) { return evaluate_minmax(n, 1); }},
      {"Min", [](const KnownNode& n) { return evaluate_minmax(n, -1); }},
      {"Mul", [](const KnownNode& n) { return binary(n, multiply); }},
      {"Neg", evaluate_neg},
      {"Not", evaluate_not},
      {"Or", [](const KnownNode& n) { return logical(n, [](bool a, bool b) { return a || b; }); }},
      {"Range", evaluate_range},
      {"ReduceProd", evaluate_product},
      {"Reshape", evaluate_reshape},
      {"Slice", evaluate_slice},
      {"Squeeze", evaluate_squeeze},
      {"Sub",
       [](const KnownNode& n) {
         return binary(n, [](Dim a, Dim b) { return std::optional<Dim>(a - b); });
       }},
      {"Unsqueeze", evaluate_unsqueeze},
      {"Where", evaluate_where},
  };
  return table;
}

}  // namespace

Result evaluate_known(const KnownNode& node) {
  auto it = rules().find(node.op_type);
  if (it == rules().end() || !has(node, 0)) return std::nullopt;
  return it->second(node);
}

bool can_evaluate_known(const std::string& op_type) { return rules().count(op_type) > 0; }

KnownInts known_shape(const ir::Shape& shape, const ir::Attrs& attrs) {
  const int64_t rank = static_cast<int64_t>(shape.size());
  auto position = [rank](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = position(attrs.i("start", 0)), end = position(attrs.i("end", rank));
  KnownInts out{ir::DType::kI64, {std::max<int64_t>(end - start, 0)}, {}};
  for (int64_t d = start; d < end; d++) out.values.push_back(shape[d]);
  return out;
}

Result known_size(const ir::Shape& shape) {
  Dim count = 1;
  for (Dim dim : shape) {
    auto next = multiply(count, dim);
    if (!next) return std::nullopt;
    count = *next;
  }
  return KnownInts{ir::DType::kI64, {}, {count}};
}

}  // namespace piper::frontend
