// What the texts of the repository look like.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tests/tidy/checks.h"

namespace piper::tidy {

namespace {

constexpr size_t kMaxLines = 600;

// Files written by hand. Golden texts and data are as programs print them.
std::vector<std::string> written_texts(const Tree& tree) {
  std::vector<std::string> paths =
      tree.list("", {".cmake", ".cpp", ".cu", ".def", ".g4", ".h", ".md", ".piper", ".proto", ".py", "CMakeLists.txt"});
  std::erase_if(paths, [](const std::string& path) { return path.starts_with("tests/golden/"); });
  for (const char* folder : {"scripts/", ".ci/"}) {
    const std::vector<std::string> more = tree.list(folder);
    paths.insert(paths.end(), more.begin(), more.end());
  }
  return paths;
}

bool is_shell_script(std::string_view text) {
  const std::string_view first = text.substr(0, text.find('\n'));
  return first.starts_with("#!") && (first.ends_with("bash") || first.ends_with("/sh"));
}

// A `target` of `[text](target)` in a line of Markdown, outside of `code`.
std::vector<std::string> link_targets(std::string_view line) {
  std::vector<std::string> targets;
  bool code = false;
  for (size_t i = 0; i < line.size(); i++) {
    if (line[i] == '`') code = !code;
    if (code || !line.substr(i).starts_with("](")) continue;
    const size_t end = line.find(')', i);
    if (end == std::string_view::npos) break;
    targets.emplace_back(line.substr(i + 2, end - i - 2));
    i = end;
  }
  return targets;
}

// Where a link of `page` leads in the repository; nothing for links that lead out of it or stay on the page.
std::optional<std::string> link_path(const std::string& page, std::string target) {
  target = target.substr(0, target.find('#'));
  if (target.empty() || target.find("://") != std::string::npos || target.starts_with("mailto:")) return std::nullopt;
  std::string path = (std::filesystem::path(folder_of(page)) / target).lexically_normal().generic_string();
  if (path.ends_with('/')) path.pop_back();
  if (path == ".") path.clear();
  return path;
}

}  // namespace

Violations check_sizes(const Tree& tree) {
  Violations found;
  for (const std::string& path : tree.list("", {".cpp", ".h", ".cu"})) {
    const size_t lines = lines_of(tree.text(path)).size();
    if (lines > kMaxLines) found.push_back(fmt::format("{}: has {} lines, more than {}", path, lines, kMaxLines));
  }
  return found;
}

Violations check_machine_paths(const Tree& tree) {
  // In two parts, or this file would be found.
  const std::vector<std::string> needles = {std::string("/wo") + "rk/", std::string("/ro") + "ot/", std::string("/tmp/") + "bash",
                                            std::string("/ho") + "me/"};
  Violations found;
  for (const auto& [path, text] : tree.files) {
    for (const std::string& needle : needles) {
      const size_t where = text.find(needle);
      if (where == std::string::npos) continue;
      const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(where), '\n') + 1;
      found.push_back(fmt::format("{}:{}: `{}` is a path of somebody's machine", path, line, needle));
    }
  }
  return found;
}

Violations check_white_space(const Tree& tree) {
  Violations found;
  for (const std::string& path : written_texts(tree)) {
    const std::string_view text = tree.text(path);
    for (const Line& line : lines_of(text)) {
      if (line.text.find('\t') != std::string_view::npos) found.push_back(at(path, line) + ": has a tab");
      if (line.text.ends_with(' ')) found.push_back(at(path, line) + ": ends with a space");
      if (line.text.ends_with('\r')) found.push_back(at(path, line) + ": ends with a carriage return");
    }
    if (!text.empty() && !text.ends_with('\n')) found.push_back(path + ": the last line has no end");
  }
  return found;
}

Violations check_shell_scripts(const Tree& tree) {
  Violations found;
  bool any = false;
  for (const auto& [path, text] : tree.files) {
    if (!is_shell_script(text)) continue;
    any = true;
    for (const Line& line : lines_of(text)) {
      if (line.text.empty() || line.text.starts_with('#')) continue;
      if (line.text != "set -euo pipefail") found.push_back(at(path, line) + ": the first command is not `set -euo pipefail`");
      break;
    }
  }
  if (!any) found.emplace_back("no shell script was found");
  return found;
}

Violations check_links(const Tree& tree) {
  Violations found;
  for (const std::string& page : tree.list("", {".md"})) {
    bool fenced = false;
    for (const Line& line : lines_of(tree.text(page))) {
      if (line.text.find("```") != std::string_view::npos) fenced = !fenced;
      if (fenced) continue;
      for (const std::string& target : link_targets(line.text)) {
        const auto path = link_path(page, target);
        if (path && !tree.has(*path)) found.push_back(fmt::format("{}: the link leads to {}, which is missing", at(page, line), *path));
      }
    }
  }
  return found;
}

Violations check_docs_index(const Tree& tree) {
  const std::string index = "docs/README.md";
  Violations found;
  const std::vector<std::string> pages = tree.list("docs/", {".md"});
  if (pages.size() < 2) found.emplace_back("docs: there are no pages");
  for (const std::string& page : pages) {
    const std::string link = fmt::format("({})", page.substr(std::string("docs/").size()));
    if (page != index && tree.text(index).find(link) == std::string_view::npos) {
      found.push_back(fmt::format("{}: {} does not link to it", page, index));
    }
  }
  return found;
}

}  // namespace piper::tidy
