#include "cli/pairs.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace piper::cli {

std::map<std::string, std::string> pairs(const std::vector<std::string>& words, const char* flag, const std::string& prefix) {
  std::map<std::string, std::string> out;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == std::string::npos || at == 0) throw CLI::ValidationError(flag, fmt::format("`{}` is not of the form name=value", word));
    std::string key = word.substr(0, at);
    if (!prefix.empty() && key.rfind(prefix, 0) != 0) throw CLI::ValidationError(flag, fmt::format("`{}` does not start with `{}`", key, prefix));
    out[key] = word.substr(at + 1);
  }
  return out;
}

std::map<std::string, int64_t> dim_sizes(const std::vector<std::string>& words) {
  std::map<std::string, int64_t> dims;
  for (const auto& [name, text] : pairs(words, "-D")) {
    int64_t size = 0;
    try {
      size = std::stoll(text);
    } catch (const std::exception&) {
    }
    if (size <= 0) throw CLI::ValidationError("-D", fmt::format("`{}={}` is not of the form dim=size", name, text));
    dims[name] = size;
  }
  return dims;
}

}  // namespace piper::cli
