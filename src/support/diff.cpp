#include "support/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace piper::support {

namespace {

constexpr size_t kContext = 3;
constexpr size_t kMostCells = 16u << 20;  // of the table; longer changes are shown as one

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end == std::string::npos ? end : end - at));
    if (end == std::string::npos) {
      lines.back() += "\n\\ No newline at end of file";
      break;
    }
    at = end + 1;
  }
  return lines;
}

struct Edit {
  char kind;  // ' ', '-', '+'
  const std::string* line;
};

// By the longest common subsequence of what lies between equal heads and tails.
std::vector<Edit> edits_of(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  size_t head = 0, tail = 0;
  while (head < std::min(a.size(), b.size()) && a[head] == b[head]) head++;
  while (tail < std::min(a.size(), b.size()) - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) tail++;
  const size_t n = a.size() - head - tail, m = b.size() - head - tail;
  std::vector<Edit> edits;
  for (size_t i = 0; i < head; i++) edits.push_back({' ', &a[i]});
  size_t i = 0, j = 0;
  if ((n + 1) * (m + 1) <= kMostCells) {
    std::vector<uint32_t> common((n + 1) * (m + 1), 0);
    const auto at = [&](size_t x, size_t y) -> uint32_t& { return common[x * (m + 1) + y]; };
    for (size_t x = n; x-- > 0;) {
      for (size_t y = m; y-- > 0;) {
        at(x, y) = a[head + x] == b[head + y] ? at(x + 1, y + 1) + 1 : std::max(at(x + 1, y), at(x, y + 1));
      }
    }
    while (i < n && j < m) {
      if (a[head + i] == b[head + j]) {
        edits.push_back({' ', &a[head + i]});
        i++;
        j++;
      } else if (at(i + 1, j) >= at(i, j + 1)) {
        edits.push_back({'-', &a[head + i++]});
      } else {
        edits.push_back({'+', &b[head + j++]});
      }
    }
  }
  while (i < n) edits.push_back({'-', &a[head + i++]});
  while (j < m) edits.push_back({'+', &b[head + j++]});
  for (size_t k = a.size() - tail; k < a.size(); k++) edits.push_back({' ', &a[k]});
  return edits;
}

}  // namespace

std::string unified_diff(const std::string& before, const std::string& after, const std::string& before_name,
                         const std::string& after_name) {
  if (before == after) return "";
  const std::vector<std::string> a = lines_of(before), b = lines_of(after);
  const std::vector<Edit> edits = edits_of(a, b);
  std::string out = fmt::format("--- {}\n+++ {}\n", before_name, after_name);
  size_t old_line = 1, new_line = 1, at = 0;  // lines of edits[at]
  while (at < edits.size()) {
    size_t change = at;
    while (change < edits.size() && edits[change].kind == ' ') change++;
    if (change == edits.size()) break;
    const size_t begin = std::max(at, change - std::min(change, kContext));
    // The hunk goes on while the next change is within twice the context.
    size_t last = change;
    for (size_t k = change; k < edits.size() && k <= last + 2 * kContext; k++) {
      if (edits[k].kind != ' ') last = k;
    }
    const size_t end = std::min(edits.size(), last + kContext + 1);
    old_line += begin - at;
    new_line += begin - at;
    std::string body;
    size_t removed = 0, added = 0;
    for (size_t k = begin; k < end; k++) {
      body += edits[k].kind + *edits[k].line + "\n";
      removed += edits[k].kind != '+';
      added += edits[k].kind != '-';
    }
    out += fmt::format("@@ -{},{} +{},{} @@\n{}", removed ? old_line : old_line - 1, removed, added ? new_line : new_line - 1, added, body);
    old_line += removed;
    new_line += added;
    at = end;
  }
  return out;
}

}  // namespace piper::support
