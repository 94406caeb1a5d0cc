// Attributes of an operation: a small sorted map from name to value. Printing is deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "ir/types.h"

namespace piper::ir {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Shape>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> init) : map_(init) {}
  bool has(const std::string& name) const { return map_.count(name) > 0; }
  void set(const std::string& name, AttrValue value) { map_[name] = std::move(value); }
  void erase(const std::string& name) { map_.erase(name); }

  int64_t i(const std::string& name, int64_t otherwise = 0) const { return get<int64_t>(name, otherwise); }
  double f(const std::string& name, double otherwise = 0) const { return get<double>(name, otherwise); }
  std::string s(const std::string& name, std::string otherwise = "") const { return get<std::string>(name, std::move(otherwise)); }
  std::vector<int64_t> ints(const std::string& name) const { return get<std::vector<int64_t>>(name, {}); }
  std::vector<double> floats(const std::string& name) const { return get<std::vector<double>>(name, {}); }
  Shape shape(const std::string& name) const { return get<Shape>(name, {}); }

  const std::map<std::string, AttrValue>& map() const { return map_; }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  // The value under `name` when it is there with type T, else `otherwise`.
  template <class T>
  T get(const std::string& name, T otherwise) const {
    auto it = map_.find(name);
    if (it == map_.end()) return otherwise;
    const T* value = std::get_if<T>(&it->second);
    return value ? *value : otherwise;
  }
  std::map<std::string, AttrValue> map_;
};

std::string to_string(const Attrs& attrs);  // "{axis=1, eps=1e-05}" or ""

}  // namespace piper::ir
