#include "ir/strategy.h"

namespace piper::ir {

int64_t Mesh::world_size() const {
  int64_t size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  return size;
}

int Mesh::axis_index(const std::string& axis_name) const {
  for (size_t i = 0; i < axes.size(); i++) {
    if (axes[i].name == axis_name) return static_cast<int>(i);
  }
  return -1;
}

namespace {

// "2", "0..4" for a run, "[1, 3]" otherwise.
std::string value_text(const std::vector<int64_t>& values) {
  if (values.size() == 1) return std::to_string(values[0]);
  if (!values.empty() && values.back() - values.front() == static_cast<int64_t>(values.size()) - 1) {
    return std::to_string(values.front()) + ".." + std::to_string(values.back() + 1);
  }
  std::string text = "[";
  for (size_t i = 0; i < values.size(); i++) text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

}  // namespace

std::string to_string(const Selector& selector) {
  constexpr std::pair<uint32_t, const char*> kLetters[] = {
      {kPassF, "F"}, {kPassB, "B"}, {kPassI, "I"}, {kPassW, "W"}, {kPassU, "U"}};
  std::string text;
  if (selector.passes == kPassAll) {
    text = "all";
  } else {
    for (const auto& [bit, letter] : kLetters) {
      if (selector.passes & bit) text += letter;
    }
  }
  text += "(";
  for (size_t i = 0; i < selector.constraints.size(); i++) {
    const Constraint& c = selector.constraints[i];
    text += (i > 0 ? ", " : "") + c.tag + " = ";
    switch (c.kind) {
      case Constraint::Kind::kOneOf: text += value_text(c.values); break;
      case Constraint::Kind::kPresent: text += "*"; break;
      case Constraint::Kind::kAbsent: text += "-"; break;
    }
  }
  return text + ")";
}

}  // namespace piper::ir
