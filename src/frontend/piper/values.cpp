#include "frontend/piper/values.h"

#include <fmt/format.h>

namespace piper::frontend {

std::string kind_name(const Value& value) {
  static constexpr const char* kNames[] = {"an unknown value", "an integer", "a float",     "a boolean",       "a string", "a size",
                                           "a list",           "a selector", "a device set", "an overlap group", "a setting"};
  return kNames[value.data.index()];
}

bool as_number(const Value& value, double* out) {
  if (const auto* i = value.get<int64_t>()) *out = static_cast<double>(*i);
  else if (const auto* f = value.get<double>()) *out = *f;
  else return false;
  return true;
}

bool equal(const Value& a, const Value& b) {
  double x = 0, y = 0;
  if (as_number(a, &x) && as_number(b, &y)) {
    const auto *i = a.get<int64_t>(), *j = b.get<int64_t>();
    return i && j ? *i == *j : x == y;
  }
  if (a.data.index() != b.data.index()) return false;
  if (const auto* v = a.get<bool>()) return *v == *b.get<bool>();
  if (const auto* v = a.get<std::string>()) return *v == *b.get<std::string>();
  if (const auto* v = a.get<Size>()) return v->bytes == b.get<Size>()->bytes;
  if (const auto* v = a.get<List>()) {
    const auto &p = **v, &q = **b.get<List>();
    if (p.size() != q.size()) return false;
    for (size_t i = 0; i < p.size(); ++i) {
      if (!equal(p[i], q[i])) return false;
    }
    return true;
  }
  return false;
}

std::string to_string(const Value& value) {
  if (const auto* v = value.get<int64_t>()) return std::to_string(*v);
  if (const auto* v = value.get<double>()) return fmt::format("{}", *v);
  if (const auto* v = value.get<bool>()) return *v ? "true" : "false";
  if (const auto* v = value.get<std::string>()) return fmt::format("\"{}\"", *v);
  if (const auto* v = value.get<Size>()) return fmt::format("{}B", v->bytes);
  if (const auto* v = value.get<ir::Selector>()) return ir::to_string(*v);
  if (const auto* v = value.get<List>()) {
    std::string text = "[";
    for (size_t i = 0; i < (*v)->size(); ++i) {
      if (i == 8) return text + ", ...]";
      text += (i ? ", " : "") + to_string((**v)[i]);
    }
    return text + "]";
  }
  return kind_name(value);
}

Value make_list(std::vector<Value> items) { return {std::make_shared<const std::vector<Value>>(std::move(items))}; }

}  // namespace piper::frontend
