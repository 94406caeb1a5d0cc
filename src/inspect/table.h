// Tables of text for terminals: columns as wide as their widest cell, fewer columns where the terminal is narrow.
#pragma once

#include <string>
#include <vector>

namespace piper::inspect {

struct Column {
  std::string title;
  bool right = false;  // numbers
  int keep = 0;        // of columns that do not fit, those with the lowest number go first
};

struct Style {
  int width = 0;  // of the terminal; 0: as wide as it gets
  bool color = false;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  // Columns without any text are left out.
  std::string text(const Style& style) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string bold(const std::string& text, const Style& style);
std::string human_flops(double flops);  // "12.3 M"

}  // namespace piper::inspect
