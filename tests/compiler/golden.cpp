#include "tests/compiler/golden.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace piper::testing {

namespace fs = std::filesystem;

std::vector<GoldenCase> golden_cases(const std::string& folder) {
  std::vector<GoldenCase> cases;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".piper") continue;
    GoldenCase c;
    c.path = entry.path().string();
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line) && line.rfind("#", 0) == 0;) {
      if (line.rfind("# model: ", 0) == 0) c.model = line.substr(9);
      if (line.rfind("# set: ", 0) == 0) {
        const size_t at = line.find('=');
        c.sets[line.substr(7, at - 7)] = line.substr(at + 1);
      }
    }
    cases.push_back(std::move(c));
  }
  std::sort(cases.begin(), cases.end(), [](const GoldenCase& a, const GoldenCase& b) { return a.path < b.path; });
  return cases;
}

std::string compare_golden(const GoldenCase& golden, const std::string& text) {
  const std::string path = fs::path(golden.path).replace_extension(".txt").string();
  if (const char* update = std::getenv("PIPER_UPDATE_GOLDEN"); update && *update == '1') {
    std::ofstream(path) << text;
    return "";
  }
  std::ifstream in(path);
  if (!in) return path + " is missing; PIPER_UPDATE_GOLDEN=1 writes it";
  std::stringstream expected;
  expected << in.rdbuf();
  if (expected.str() == text) return "";
  std::istringstream a(expected.str()), b(text);
  std::string x, y;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, x)), more_b = static_cast<bool>(std::getline(b, y));
    if (!more_a && !more_b) return path + ": differs in white space at the end";
    if (!more_a || !more_b || x != y) {
      return path + ":" + std::to_string(line) + "\n  expected: " + (more_a ? x : "(end)") + "\n  got:      " + (more_b ? y : "(end)");
    }
  }
}

}  // namespace piper::testing
