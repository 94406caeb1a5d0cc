#include "inspect/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::inspect {

namespace {

constexpr size_t kGap = 2;

// Code points of UTF-8, which is what a terminal counts.
size_t length(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string pad(const std::string& text, size_t width, bool right) {
  const std::string space(width - std::min(width, length(text)), ' ');
  return right ? space + text : text + space;
}

}  // namespace

std::string bold(const std::string& text, const Style& style) {
  return style.color ? "\033[1m" + text + "\033[0m" : text;
}

std::string Table::text(const Style& style) const {
  std::vector<size_t> width, shown;
  for (size_t c = 0; c < columns_.size(); c++) {
    size_t widest = 0;
    for (const auto& row : rows_) widest = std::max(widest, length(row[c]));
    if (widest > 0 || c == 0) shown.push_back(c);
    width.push_back(std::max(widest, length(columns_[c].title)));
  }
  auto total = [&] {
    size_t sum = 0;
    for (size_t c : shown) sum += width[c] + kGap;
    return sum - kGap;
  };
  while (style.width > 0 && shown.size() > 1 && total() > static_cast<size_t>(style.width)) {
    const auto least = std::min_element(shown.begin() + 1, shown.end(),
                                        [&](size_t a, size_t b) { return columns_[a].keep < columns_[b].keep; });
    shown.erase(least);
  }
  auto line = [&](const auto& cell) {
    std::string out;
    for (size_t c : shown)
      out += (c == shown.front() ? "" : std::string(kGap, ' ')) + pad(cell(c), width[c], columns_[c].right);
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::string text = bold(line([&](size_t c) { return columns_[c].title; }), style) + "\n";
  for (const auto& row : rows_) text += line([&](size_t c) { return row[c]; }) + "\n";
  return text;
}

std::string human_flops(double flops) {
  const char* units[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (flops >= 1000 && unit + 1 < std::size(units)) {
    flops /= 1000;
    unit++;
  }
  return unit == 0 ? fmt::format("{:.0f}", flops) : fmt::format("{:.1f}{}", flops, units[unit]);
}

}  // namespace piper::inspect
