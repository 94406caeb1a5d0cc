#include "tests/tidy/tree.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>

namespace piper::tidy {

namespace fs = std::filesystem;

namespace {

// What .gitignore names; `build` and `out` in the root only: a pass is called build too.
bool is_left_behind(const std::string& folder, bool in_root) {
  constexpr std::array kNames = {".git", ".cache", "__pycache__", "venv"};
  if (std::find(kNames.begin(), kNames.end(), folder) != kNames.end() || folder.ends_with(".plan")) return true;
  return in_root && (folder == "build" || folder == "out" || folder.starts_with("build-"));
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

}  // namespace

bool Tree::has(const std::string& path) const {
  if (path.empty() || has_file(path)) return true;
  const auto it = files.lower_bound(path + "/");
  return it != files.end() && it->first.starts_with(path + "/");
}

std::string_view Tree::text(const std::string& path) const {
  const auto it = files.find(path);
  return it == files.end() ? std::string_view() : std::string_view(it->second);
}

std::vector<std::string> Tree::list(std::string_view folder, const std::vector<std::string>& suffixes) const {
  std::vector<std::string> found;
  for (const auto& [path, text] : files) {
    if (!path.starts_with(folder)) continue;
    const bool fits = suffixes.empty() || std::any_of(suffixes.begin(), suffixes.end(), [&path = path](const std::string& suffix) {
                        return path.ends_with(suffix);
                      });
    if (fits) found.push_back(path);
  }
  return found;
}

Tree load_tree(const fs::path& root) {
  Tree tree;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    if (it->is_directory()) {
      if (is_left_behind(it->path().filename().string(), it.depth() == 0)) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    std::ifstream in(it->path(), std::ios::binary);
    tree.files[fs::relative(it->path(), root).generic_string()] = std::string(std::istreambuf_iterator<char>(in), {});
  }
  return tree;
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back({++number, text.substr(0, end)});
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::string at(const std::string& path, const Line& line) { return path + ":" + std::to_string(line.number); }

std::vector<Row> table_rows(std::string_view text, std::string_view macro) {
  std::vector<Row> rows;
  const std::string begin = std::string(macro) + "(";
  for (const Line& line : lines_of(text)) {
    if (!line.text.starts_with(begin)) continue;
    const std::string_view arguments = line.text.substr(begin.size());
    const size_t comma = arguments.find(',');
    if (comma == std::string_view::npos) continue;
    const size_t end = arguments.find_first_of(",)", comma + 1);
    rows.push_back({line.number, std::string(trim(arguments.substr(0, comma))),
                    std::string(trim(arguments.substr(comma + 1, end - comma - 1)))});
  }
  return rows;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool has_word(std::string_view text, std::string_view word) {
  for (size_t i = text.find(word); i != std::string_view::npos; i = text.find(word, i + 1)) {
    const bool before = i == 0 || !is_word_char(text[i - 1]);
    const bool after = i + word.size() == text.size() || !is_word_char(text[i + word.size()]);
    if (before && after) return true;
  }
  return false;
}

}  // namespace piper::tidy
