#include "ir/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace piper::ir {

namespace {

struct Printer {
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::string& v) const { return fmt::format("\"{}\"", v); }
  std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const std::vector<double>& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  std::string operator()(const Shape& v) const { return to_string(v); }
};

}  // namespace

std::string to_string(const Attrs& attrs) {
  std::string text;
  for (const auto& [name, value] : attrs.map()) {
    text += (text.empty() ? "{" : ", ") + name + "=" + std::visit(Printer{}, value);
  }
  return text.empty() ? text : text + "}";
}

}  // namespace piper::ir
