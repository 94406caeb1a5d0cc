#include "frontend/onnx/baked_batch.h"

#include <algorithm>

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
    result =
        Dim(result.constant * d.constant, result.constant * d.batch + result.batch * d.constant);
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

// Where the samples may stand in a target: the elements before them, and how many positions one
// sample takes when the sample dim has other dims merged into it.
struct Place {
  int64_t before = 1;
  int64_t merged = 1;
};

std::optional<Place> place_of(const Shape& data) {
  const int sample = ir::sample_dim(data);
  if (sample < 0) return std::nullopt;
  const auto before = elements_before(data, static_cast<size_t>(sample));
  const Dim dim = data[static_cast<size_t>(sample)];
  if (!before || *before < 1 || dim.constant != 0) return std::nullopt;
  return Place{*before, dim.batch};
}

std::optional<Shape> with_entry(const Shape& target, size_t i, Dim entry, Dim total) {
  Shape rewritten = target;
  rewritten[i] = entry;
  return complete(rewritten, total);
}

// Rewrites a static target for data whose size depends on the batch, given the number of samples at
// export. An entry that is this number is the batch where samples can stay together; else one that
// is a multiple of it, because other dims are merged into it.
std::optional<Shape> rewrite_literal(const Shape& data, const Shape& target, Dim total,
                                     int64_t literal) {
  auto place = place_of(data);
  if (!place) return std::nullopt;
  for (size_t i = 0; i < target.size(); i++) {
    const auto start = elements_before(target, i);
    if (target[i] != Dim(literal) || !start || *start < 1) continue;
    if (*start % place->before != 0 || place->before * place->merged % *start != 0) continue;
    if (auto whole = with_entry(target, i, Dim::batch_size(), total)) return whole;
  }
  for (size_t i = 0; i < target.size(); i++) {
    const auto start = elements_before(target, i);
    if (!start || *start < 1 || place->before % *start != 0 || target[i].constant < 1) continue;
    if (target[i].constant % (literal * (place->before / *start)) != 0) continue;
    if (auto whole = with_entry(target, i, Dim(0, target[i].constant / literal), total))
      return whole;
  }
  return std::nullopt;
}

// The same without knowing the number of samples: all other entries together must leave a whole
// number of elements a sample, and the entry must be a multiple of that.
std::optional<Shape> rewrite_unknown(const Shape& data, const Shape& target, Dim total) {
  auto place = place_of(data);
  if (!place) return std::nullopt;
  for (size_t i = 0; i < target.size(); i++) {
    const auto start = elements_before(target, i);
    if (!start || *start < 1 || place->before % *start != 0 || target[i].constant < 1) continue;
    Shape others = target;
    others.erase(others.begin() + static_cast<long>(i));
    if (std::find(others.begin(), others.end(), Dim(-1)) != others.end()) continue;
    auto rest = product(others);
    auto q = rest ? quotient(total, *rest) : std::nullopt;
    if (!q || q->constant != 0 || q->batch % (place->before / *start) != 0) continue;
    if (target[i].constant % q->batch == 0) return with_entry(target, i, *q, total);
  }
  return std::nullopt;
}

}  // namespace

Expected<Shape> reshape_target(const Shape& data, const std::vector<Dim>& target_in,
                               bool allow_zero, std::optional<int64_t> literal_batch) {
  Shape target = target_in;
  for (size_t i = 0; i < target.size() && !allow_zero; i++) {
    if (target[i] != Dim(0)) continue;
    if (i >= data.size())
      return user_error("target " + to_string(target_in) + " copies a dim that the data lacks");
    target[i] = data[i];
  }
  const Dim total = ir::num_elements(data);
  bool target_depends = false;
  for (Dim d : target) target_depends = target_depends || depends(d);
  if (depends(total) && !target_depends) {
    if (literal_batch && *literal_batch > 0) {
      if (auto rewritten = rewrite_literal(data, target, total, *literal_batch)) return *rewritten;
    }
    if (auto whole = complete(target, total)) return *whole;
    if (auto rewritten = rewrite_unknown(data, target, total)) return *rewritten;
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
