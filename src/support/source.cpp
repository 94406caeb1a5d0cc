#include "support/source.h"

#include <algorithm>

#include "support/error.h"

namespace piper::support {

int32_t SourceMap::add(std::string name, std::string text) {
  PIPER_CHECK(text.size() < (1u << 30), "source text of " + name + " is too large");
  File file{std::move(name), std::move(text), {0}};
  for (size_t i = 0; i < file.text.size(); i++) {
    if (file.text[i] == '\n') file.line_starts.push_back(static_cast<int32_t>(i + 1));
  }
  files_.push_back(std::move(file));
  return static_cast<int32_t>(files_.size() - 1);
}

LineColumn SourceMap::locate(int32_t file, int32_t offset) const {
  const File& f = files_[file];
  offset = std::clamp(offset, 0, static_cast<int32_t>(f.text.size()));
  auto next = std::upper_bound(f.line_starts.begin(), f.line_starts.end(), offset);
  int line = static_cast<int>(next - f.line_starts.begin());
  int column = 1;
  for (int32_t i = f.line_starts[line - 1]; i < offset; i++) {
    // Continuation bytes of UTF-8 do not start a code point.
    if ((static_cast<unsigned char>(f.text[i]) & 0xC0) != 0x80) column++;
  }
  return {line, column};
}

std::string_view SourceMap::line(int32_t file, int line) const {
  const File& f = files_[file];
  if (line < 1 || line > static_cast<int>(f.line_starts.size())) return {};
  size_t begin = f.line_starts[line - 1];
  size_t end = line < static_cast<int>(f.line_starts.size()) ? f.line_starts[line] - 1 : f.text.size();
  std::string_view text = std::string_view(f.text).substr(begin, end - begin);
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

std::string SourceMap::describe(const SourceSpan& span) const {
  if (!span.valid()) return "";
  LineColumn at = locate(span.file, span.begin);
  return name(span.file) + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
}

}  // namespace piper::support
