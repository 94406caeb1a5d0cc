#include "frontend/onnx/baked_batch.h"

namespace piper::frontend {

using ir::Dim;
using ir::Shape;
using support::Expected;
using support::user_error;

namespace {

bool depends(Dim d) { return !d.is_static(); }

// Product of dims of which at most one depends on the batch; nothing when two do.
std::optional<Dim> product(const Shape& dims) {
  Dim result = 1;
  for (Dim d : dims) {
    if (depends(result) && depends(d)) return std::nullopt;
    result = Dim(result.constant * d.constant, result.constant * d.batch + result.batch * d.constant);
  }
  return result;
}

// The dim q with q * by == total for every batch size.
std::optional<Dim> quotient(Dim total, Dim by) {
  if (by == Dim(0)) return std::nullopt;
  if (!depends(by)) {
    if (total.constant % by.constant != 0 || total.batch % by.constant != 0) return std::nullopt;
    return Dim(total.constant / by.constant, total.batch / by.constant);
  }
  if (total.batch % by.batch != 0) return std::nullopt;
  const int64_t q = total.batch / by.batch;
  return q * by.constant == total.constant ? std::optional<Dim>(Dim(q)) : std::nullopt;
}

// Replaces the one -1 by what is left of `total`; nothing when the sizes do not come out.
std::optional<Shape> complete(Shape target, Dim total) {
  int free = -1;
  Shape rest;
  for (size_t i = 0; i < target.size(); i++) {
    if (target[i] == Dim(-1)) {
      if (free >= 0) return std::nullopt;
      free = static_cast<int>(i);
    } else {
      rest.push_back(target[i]);
    }
  }
  auto known = product(rest);
  if (!known) return std::nullopt;
  if (free < 0) return *known == total ? std::optional<Shape>(std::move(target)) : std::nullopt;
  auto q = quotient(total, *known);
  if (!q) return std::nullopt;
  target[static_cast<size_t>(free)] = *q;
  // Two dims of the result must not both depend on the batch.
  return product(target) ? std::optional<Shape>(std::move(target)) : std::nullopt;
}

// Number of elements before the sample dim in a shape; nothing when a dim before it is -1.
std::optional<int64_t> elements_before(const Shape& shape, size_t end) {
  int64_t count = 1;
  for (size_t i = 0; i < end; i++) {
    if (depends(shape[i]) || shape[i].constant < 0) return std::nullopt;
    count *= shape[i].constant;
  }
  return count;
}

// Rewrites a static target for data whose size depends on the batch: some entry is a multiple of the traced batch size,
// in the position where samples stay together.
std::optional<Shape> rewrite_baked(const Shape& data, const Shape& target, Dim total, std::optional<int64_t> literal) {
  const int sample = ir::sample_dim(data);
  if (sample < 0) return std::nullopt;
  const auto before = elements_before(data, static_cast<size_t>(sample));
  for (size_t i = 0; i < target.size(); i++) {
    // The entry may merge dims before the samples with them, but must not start after or in the middle of one.
    const auto start = elements_before(target, i);
    if (!before || !start || *start == 0 || *before % *start != 0 || target[i].constant < 1) continue;
    const int64_t merged = *before / *start;
    if (literal) {
      if (target[i].constant % (*literal * merged) != 0) continue;
      Shape rewritten = target;
      rewritten[i] = Dim(0, target[i].constant / *literal);
      if (auto whole = complete(rewritten, total)) return whole;
      continue;
    }
    // The number of samples is not known: the other entries leave a whole number of elements a sample.
    Shape others = target;
    others.erase(others.begin() + static_cast<long>(i));
    bool free = false;
    for (Dim d : others) free = free || d == Dim(-1);
    auto rest = product(others);
    auto q = free || !rest ? std::nullopt : quotient(total, *rest);
    if (!q || q->constant != 0 || q->batch % merged != 0 || target[i].constant % q->batch != 0) continue;
    Shape rewritten = target;
    rewritten[i] = *q;
    return rewritten;
  }
  return std::nullopt;
}

}  // namespace

Expected<Shape> reshape_target(const Shape& data, const std::vector<Dim>& target_in, bool allow_zero,
                               std::optional<int64_t> literal_batch) {
  Shape target = target_in;
  for (size_t i = 0; i < target.size() && !allow_zero; i++) {
    if (target[i] != Dim(0)) continue;
    if (i >= data.size()) return user_error("target " + to_string(target_in) + " copies a dim that the data lacks");
    target[i] = data[i];
  }
  const Dim total = ir::num_elements(data);
  bool target_depends = false;
  for (Dim d : target) target_depends = target_depends || depends(d);
  if (depends(total) && !target_depends) {
    if (literal_batch && *literal_batch > 0) {
      if (auto rewritten = rewrite_baked(data, target, total, literal_batch)) return *rewritten;
    }
    if (auto whole = complete(target, total)) return *whole;
    if (auto rewritten = rewrite_baked(data, target, total, std::nullopt)) return *rewritten;
    return user_error("the target " + to_string(target_in) + " of data " + to_string(data) +
                      " has the batch size of the export in it, and it cannot be told where");
  }
  if (auto whole = complete(target, total)) return *whole;
  return user_error("cannot reshape " + to_string(data) + " to " + to_string(target_in));
}

Shape expand_target(const Shape& data, const std::vector<Dim>& target_in) {
  Shape target = target_in;
  for (size_t i = 1; i <= std::min(data.size(), target.size()); i++) {
    Dim& wanted = target[target.size() - i];
    const Dim have = data[data.size() - i];
    if (depends(have) && wanted.is_static()) wanted = have;
  }
  return target;
}

}  // namespace piper::frontend
