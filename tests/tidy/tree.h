// The files of the repository as texts, so that checks can be run on a made-up tree as well.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace piper::tidy {

struct Tree {
  std::map<std::string, std::string> files;  // path from the root, with `/`, to content

  bool has_file(const std::string& path) const { return files.count(path) > 0; }
  // A file, or a folder with a file somewhere in it.
  bool has(const std::string& path) const;
  // The content, empty when there is no such file.
  std::string_view text(const std::string& path) const;
  // Paths below `folder` that end with one of `suffixes` (with none: all), sorted.
  std::vector<std::string> list(std::string_view folder, const std::vector<std::string>& suffixes = {}) const;
};

// Everything below `root` except what builds and runs leave behind.
Tree load_tree(const std::filesystem::path& root);

struct Line {
  int number = 0;  // from 1
  std::string_view text;
};
// Lines without their ends.
std::vector<Line> lines_of(std::string_view text);

// "path:line", where a violation is.
std::string at(const std::string& path, const Line& line);

// The first two arguments of every line `MACRO(a, b…)`, with the line number.
struct Row {
  int line = 0;
  std::string first, second;
};
std::vector<Row> table_rows(std::string_view text, std::string_view macro);

// "src/ops/cpu/gemm.h" -> "src/ops/cpu"
std::string folder_of(const std::string& path);
// Whether text holds `word` with no letter, digit or underscore around it.
bool has_word(std::string_view text, std::string_view word);
bool is_word_char(char c);

}  // namespace piper::tidy
