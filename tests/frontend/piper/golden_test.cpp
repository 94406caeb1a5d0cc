// Golden texts: tests/golden/piper/*.piper hold cases that start with `# --- name`. A case's options are in lines
// `# args: -D pp=3 --set train.batch=0` and `# model: none`; what Piper says follows as lines that start with `#> `.
// PIPER_UPDATE_GOLDEN=1 rewrites those. Files named fail_* hold mistakes, ok_* the evaluated strategy.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "support/explain.h"
#include "support/strings.h"
#include "tests/frontend/piper/print_strategy.h"
#include "tests/frontend/piper/toy_model.h"

namespace fs = std::filesystem;
using namespace piper;

namespace {

struct Case {
  std::string name, text, expected;
  frontend::LoadOptions options;
  bool model = true;
};

// `-D a=b --set train.c=d`; a value in single quotes may hold spaces.
void parse_args(const std::string& line, frontend::LoadOptions& options) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '\'') quoted = !quoted;
    else if (c == ' ' && !quoted) words.emplace_back();
    else words.back() += c;
  }
  for (size_t i = 0; i + 1 < words.size(); i++) {
    size_t equals = words[i + 1].find('=');
    if (equals == std::string::npos) continue;
    auto& target = words[i] == "-D" ? options.defines : options.sets;
    if (words[i] == "-D" || words[i] == "--set") target[words[i + 1].substr(0, equals)] = words[i + 1].substr(equals + 1);
  }
}

std::vector<Case> read_cases(const fs::path& file) {
  std::ifstream in(file);
  std::vector<Case> cases;
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with("# --- ")) {
      cases.push_back({line.substr(6), "", "", {}, true});
    } else if (!cases.empty() && line.starts_with("#>")) {
      cases.back().expected += line.substr(std::min<size_t>(3, line.size())) + "\n";
    } else if (!cases.empty()) {
      if (line.starts_with("# args: ")) parse_args(line.substr(8), cases.back().options);
      if (line == "# model: none") cases.back().model = false;
      cases.back().text += line + "\n";
    }
  }
  for (Case& c : cases) {
    while (c.text.ends_with("\n\n")) c.text.pop_back();
  }
  return cases;
}

void write_cases(const fs::path& file, const std::vector<Case>& cases) {
  std::ofstream out(file);
  for (const Case& c : cases) {
    out << (&c == &cases[0] ? "" : "\n") << "# --- " << c.name << "\n" << c.text;
    for (const std::string& line : support::split(c.expected.substr(0, c.expected.size() - !c.expected.empty()), '\n')) {
      out << (line.empty() ? "#>" : "#> ") << line << "\n";
    }
  }
}

}  // namespace

TEST_CASE("golden strategies", "[golden]") {
  const bool update = std::getenv("PIPER_UPDATE_GOLDEN") != nullptr;
  const ir::Model model = test::toy_model(4);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator("tests/golden/piper")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  size_t mistakes = 0;
  for (const fs::path& file : files) {
    const bool fails = file.filename().string().starts_with("fail_");
    std::vector<Case> cases = read_cases(file);
    CHECK(!cases.empty());
    for (Case& c : cases) {
      INFO(file.string() << ": " << c.name);
      test::Loaded loaded = test::load(c.text, c.model ? &model : nullptr, c.options, "a.piper");
      std::string actual = loaded.errors;
      if (loaded.ok()) actual += test::print(loaded.strategy);
      CHECK(loaded.ok() == !fails);
      mistakes += fails;
      if (update) c.expected = actual;
      CHECK(actual == c.expected);
    }
    if (update) write_cases(file, cases);
  }
  CHECK(mistakes >= 45);
}

// Every diagnostic of the language has a case that shows it.
TEST_CASE("every code of the language is in a golden file", "[golden]") {
  std::string all;
  for (const auto& entry : fs::directory_iterator("tests/golden/piper")) {
    std::ifstream in(entry.path());
    std::stringstream text;
    text << in.rdbuf();
    all += text.str();
  }
  const std::set<std::string> elsewhere = {"E0001", "E0002", "E0003"};  // hostile_test.cpp, loader_test.cpp
  const char* kCodes[] = {
#define PIPER_DIAGNOSTIC(code, severity, title) #code,
#include "support/diagnostics.def"
#undef PIPER_DIAGNOSTIC
  };
  for (const std::string code : kCodes) {
    const bool ours = code < "E0400" || code == "E0511" || code == "E0512" || code == "W0201";
    if (!ours || elsewhere.count(code)) continue;
    INFO(code);
    CHECK(all.find("[" + code + "]") != std::string::npos);
  }
}

TEST_CASE("every code has an explain page", "[explain]") {
  const std::vector<std::string> codes = {
#define PIPER_DIAGNOSTIC(code, severity, title) #code,
#include "support/diagnostics.def"
#undef PIPER_DIAGNOSTIC
  };
  for (const std::string& name : codes) {
    INFO(name);
    auto code = support::parse_code(name);
    REQUIRE(code.has_value());
    CHECK(support::explain_page(*code).starts_with("# " + name + ": " + std::string(support::code_title(*code))));
  }
}
