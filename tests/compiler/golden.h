// Golden texts of the compiler: a strategy file `<case>.piper` whose first lines say `# model: FILE` and optionally
// `# set: train.k=v`, and the expected text in `<case>.txt` beside it. PIPER_UPDATE_GOLDEN=1 rewrites the latter.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace piper::testing {

struct GoldenCase {
  std::string path;   // of the .piper file
  std::string model;
  std::map<std::string, std::string> sets;
};

// The cases of a folder, sorted by name.
std::vector<GoldenCase> golden_cases(const std::string& folder);
// Compares with the file beside the case, or rewrites it; the message says how they differ. Empty: equal.
std::string compare_golden(const GoldenCase& golden, const std::string& text);

}  // namespace piper::testing
