// Source text and places in it. A span is (file, begin, end) in bytes; the SourceMap owns the text and
// turns offsets into lines and columns. Things that do not come from a text have the default, invalid span.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piper::support {

struct SourceSpan {
  int32_t file = -1;
  int32_t begin = 0;
  int32_t end = 0;
  bool valid() const { return file >= 0; }
  friend bool operator==(const SourceSpan&, const SourceSpan&) = default;
};

// 1-based line and column; the column counts Unicode code points.
struct LineColumn {
  int line = 1;
  int column = 1;
};

class SourceMap {
 public:
  // Adds a text under the name users see and returns its file number.
  int32_t add(std::string name, std::string text);
  const std::string& name(int32_t file) const { return files_[file].name; }
  const std::string& text(int32_t file) const { return files_[file].text; }
  LineColumn locate(int32_t file, int32_t offset) const;
  std::string_view line(int32_t file, int line) const;
  // "name:line:col", or "" for an invalid span.
  std::string describe(const SourceSpan& span) const;

 private:
  struct File {
    std::string name;
    std::string text;
    std::vector<int32_t> line_starts;
  };
  std::vector<File> files_;
};

}  // namespace piper::support
