#include "support/strings.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace piper::support {

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); i++) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); i++) {
    if (i == text.size() || text[i] == separator) {
      out.emplace_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return out;
}

namespace {

// One decimal below ten, none above; `step` is 1024 or 1000.
std::string scaled(int64_t value, double step, const std::vector<std::string>& units) {
  double v = std::abs(static_cast<double>(value));
  size_t unit = 0;
  // 0.9995: what would be shown as "1000 k" is shown as "1 M".
  while (v >= step * 0.9995 && unit + 1 < units.size()) {
    v /= step;
    unit++;
  }
  std::string number = unit == 0 || v >= 99.95 ? fmt::format("{:.0f}", v) : fmt::format("{:.1f}", v);
  if (number.size() > 2 && number.ends_with(".0")) number.resize(number.size() - 2);
  std::string text = (value < 0 ? "-" : "") + number;
  return units[unit].empty() ? text : text + " " + units[unit];
}

}  // namespace

std::string human_bytes(int64_t bytes) {
  return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string human_count(int64_t count) { return scaled(count, 1000, {"", "k", "M", "G", "T", "P"}); }

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

using Captures = std::vector<std::pair<std::string, int64_t>>;

// Binds a capture; false when it is bound to another value already.
bool bind(Captures& captures, std::string_view name, int64_t value) {
  for (const auto& [known, v] : captures) {
    if (known == name) return v == value;
  }
  captures.emplace_back(std::string(name), value);
  return true;
}

// Matches one component: literals, `*`, `{name}`. Both wild parts are tried longest first.
bool match_component(std::string_view glob, std::string_view text, Captures& captures) {
  if (glob.empty()) return text.empty();
  if (glob[0] == '*') {
    if (glob.size() == 1) return true;
    for (size_t n = text.size() + 1; n-- > 0;) {
      Captures attempt = captures;
      if (match_component(glob.substr(1), text.substr(n), attempt)) {
        captures = std::move(attempt);
        return true;
      }
    }
    return false;
  }
  size_t close = glob[0] == '{' ? glob.find('}') : std::string_view::npos;
  if (close != std::string_view::npos) {
    size_t digits = 0;
    while (digits < text.size() && digits < 18 && is_digit(text[digits])) digits++;
    for (size_t n = digits; n > 0; n--) {
      Captures attempt = captures;
      int64_t value = std::stoll(std::string(text.substr(0, n)));
      if (bind(attempt, glob.substr(1, close - 1), value) &&
          match_component(glob.substr(close + 1), text.substr(n), attempt)) {
        captures = std::move(attempt);
        return true;
      }
    }
    return false;
  }
  return !text.empty() && text[0] == glob[0] && match_component(glob.substr(1), text.substr(1), captures);
}

class PathMatcher {
 public:
  PathMatcher(std::string_view glob, std::string_view path)
      : glob_(split(glob, '.')), path_(path.empty() ? std::vector<std::string>{} : split(path, '.')) {
    std::set<std::string> names;
    for (const std::string& name : glob_captures(glob)) repeats_ |= !names.insert(name).second;
  }

  std::optional<GlobMatch> run() {
    Captures captures;
    if (!match(0, 0, captures)) return std::nullopt;
    return GlobMatch{std::move(captures)};
  }

 private:
  // `**` is tried shortest first, so that a capture after it takes the outermost integer of the path.
  bool match(size_t g, size_t p, Captures& captures) {
    if (g == glob_.size()) return p == path_.size();
    // Without repeated names, what failed here once fails whatever is captured before: keeps this polynomial.
    if (!repeats_ && failed_.count({g, p})) return false;
    if (glob_[g] == "**") {
      for (size_t next = p; next <= path_.size(); next++) {
        Captures attempt = captures;
        if (match(g + 1, next, attempt)) {
          captures = std::move(attempt);
          return true;
        }
      }
    } else if (p < path_.size() && !path_[p].empty()) {
      Captures attempt = captures;
      if (match_component(glob_[g], path_[p], attempt) && match(g + 1, p + 1, attempt)) {
        captures = std::move(attempt);
        return true;
      }
    }
    failed_.insert({g, p});
    return false;
  }

  std::vector<std::string> glob_, path_;
  std::set<std::pair<size_t, size_t>> failed_;
  bool repeats_ = false;
};

}  // namespace

std::optional<GlobMatch> match_path_glob(std::string_view glob, std::string_view path) {
  return PathMatcher(glob, path).run();
}

std::vector<std::string> glob_captures(std::string_view glob) {
  std::vector<std::string> names;
  for (size_t open = glob.find('{'); open != std::string_view::npos; open = glob.find('{', open + 1)) {
    size_t close = glob.find('}', open);
    if (close == std::string_view::npos) break;
    names.emplace_back(glob.substr(open + 1, close - open - 1));
  }
  return names;
}

}  // namespace piper::support
