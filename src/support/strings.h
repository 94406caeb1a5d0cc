// Small text helpers: globs over dotted paths, joining, human sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piper::support {

std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
// "1.5 MiB", "640 B"
std::string human_bytes(int64_t bytes);
// "1.3 M", "12 k"
std::string human_count(int64_t count);

// A glob over dot-separated components: `*` matches within one component, `**` any number of components,
// `{name}` one component or part of one that is a non-negative integer.
struct GlobMatch {
  std::vector<std::pair<std::string, int64_t>> captures;
};
std::optional<GlobMatch> match_path_glob(std::string_view glob, std::string_view path);
// Names of the captures of a glob, in order.
std::vector<std::string> glob_captures(std::string_view glob);

}  // namespace piper::support
