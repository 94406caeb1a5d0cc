// Options of the form name=value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace piper::cli {

// Of every word its two halves; a word without `=`, or a name that does not start with `prefix`, is a usage error.
std::map<std::string, std::string> pairs(const std::vector<std::string>& words, const char* flag, const std::string& prefix = "");
// Sizes of symbolic dims: values above 0.
std::map<std::string, int64_t> dim_sizes(const std::vector<std::string>& words);

}  // namespace piper::cli
