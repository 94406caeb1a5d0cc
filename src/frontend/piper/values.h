// Values of the language.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "ir/strategy.h"

namespace piper::frontend {

struct Value;
using List = std::shared_ptr<const std::vector<Value>>;

struct Size {
  int64_t bytes = 0;
};
// `x | y`: runs side by side.
struct Group {
  std::vector<ir::Selector> selectors;
};
// A call of a train setting such as `adamw(lr = 1e-3)`: its name and arguments by name.
struct Record {
  std::string name;
  std::map<std::string, std::shared_ptr<const Value>> fields;
};
// What depends on a model that is not there (`piper check` without one).
struct Unknown {};

// Values are copied a lot (lists, scopes): what is large is shared.
template <class T>
using Box = std::shared_ptr<const T>;

struct Value {
  std::variant<Unknown, int64_t, double, bool, Box<std::string>, Size, List, Box<ir::Selector>, Box<ir::DeviceSet>, Box<Group>, Box<Record>>
      data;

  Value() = default;
  Value(Unknown v) : data(v) {}
  Value(int64_t v) : data(v) {}
  Value(double v) : data(v) {}
  Value(bool v) : data(v) {}
  Value(Size v) : data(v) {}
  Value(List v) : data(std::move(v)) {}
  Value(std::string v) : data(std::make_shared<const std::string>(std::move(v))) {}
  Value(ir::Selector v) : data(std::make_shared<const ir::Selector>(std::move(v))) {}
  Value(ir::DeviceSet v) : data(std::make_shared<const ir::DeviceSet>(std::move(v))) {}
  Value(Group v) : data(std::make_shared<const Group>(std::move(v))) {}
  Value(Record v) : data(std::make_shared<const Record>(std::move(v))) {}

  // The value as a T, or null when it is of another kind.
  template <class T>
  const T* get() const {
    if constexpr (std::is_constructible_v<decltype(data), Box<T>> && !std::is_same_v<T, std::vector<Value>>) {
      const Box<T>* box = std::get_if<Box<T>>(&data);
      return box ? box->get() : nullptr;
    } else {
      return std::get_if<T>(&data);
    }
  }
  bool unknown() const { return std::holds_alternative<Unknown>(data); }
};

// "an integer", "a list", for messages.
std::string kind_name(const Value& value);
// Whether two values of equal kind are equal; false for kinds that do not compare.
bool equal(const Value& a, const Value& b);
// The value as a user would write it, shortened.
std::string to_string(const Value& value);
Value make_list(std::vector<Value> items);
// Integers and floats as a float.
bool as_number(const Value& value, double* out);

}  // namespace piper::frontend
