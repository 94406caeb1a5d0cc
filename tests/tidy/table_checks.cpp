// What belongs to a row of a table: the chains of ARCHITECTURE.md, "Adding things".
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tests/tidy/checks.h"

namespace piper::tidy {

namespace {

constexpr const char* kPasses = "src/passes/passes.def";
constexpr const char* kOps = "src/ops/ops.def";
constexpr const char* kDiagnostics = "src/support/diagnostics.def";

// The rows; a table without any is a violation.
std::vector<Row> rows_of(const Tree& tree, const char* path, std::string_view macro, Violations& found) {
  std::vector<Row> rows = table_rows(tree.text(path), macro);
  if (rows.empty()) found.push_back(fmt::format("{}: no row {}(…) was found", path, macro));
  return rows;
}

void require_file(const Tree& tree, const std::string& where, const std::string& path, Violations& found) {
  if (!tree.has_file(path)) found.push_back(fmt::format("{}: {} is missing", where, path));
}

std::string place(const char* table, const Row& row) { return fmt::format("{}:{}: `{}`", table, row.line, row.first); }

void check_op_folder(const Tree& tree, const std::string& where, const std::string& folder, Violations& found) {
  for (const char* part : {"", "_cpu", "_cases"}) {
    require_file(tree, where, fmt::format("src/ops/{0}/{0}{1}.cpp", folder, part), found);
  }
}

// Folders of src/ops that hold the three files of an operation but are named by no row.
void check_stray_op_folders(const Tree& tree, const std::set<std::string>& known, Violations& found) {
  for (const std::string& path : tree.list("src/ops/", {"_cases.cpp"})) {
    const std::string folder = folder_of(path).substr(std::string("src/ops").size());
    if (!folder.empty() && !known.count(folder.substr(1))) found.push_back(fmt::format("{}: no row of {} names its folder", path, kOps));
  }
}

// Texts in which a code counts as tested: sources and golden files of tests/ but for these checks.
std::vector<std::string> test_texts(const Tree& tree) {
  std::vector<std::string> paths = tree.list("tests/", {".cpp", ".h", ".txt", ".piper"});
  std::erase_if(paths, [](const std::string& path) { return path.starts_with("tests/tidy/"); });
  return paths;
}

bool any_has_word(const Tree& tree, const std::vector<std::string>& paths, const std::string& word) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return has_word(tree.text(path), word); });
}

}  // namespace

Violations check_passes(const Tree& tree) {
  Violations found;
  for (const Row& row : rows_of(tree, kPasses, "PIPER_PASS", found)) {
    const std::string where = place(kPasses, row);
    require_file(tree, where, fmt::format("src/passes/{}.cpp", row.first), found);
    const std::string golden = "tests/golden/passes/" + row.first;
    if (!tree.has(golden)) found.push_back(fmt::format("{}: {}/ has no golden text", where, golden));
    if (tree.text("docs/passes.md").find("\n## " + row.first + "\n") == std::string_view::npos) {
      found.push_back(fmt::format("{}: docs/passes.md has no section of that name", where));
    }
  }
  return found;
}

Violations check_ops(const Tree& tree) {
  Violations found;
  std::set<std::string> folders;
  for (const Row& row : rows_of(tree, kOps, "PIPER_OP", found)) {
    const std::string where = place(kOps, row);
    if (folders.insert(row.second).second) check_op_folder(tree, where, row.second, found);
    const std::string cases = fmt::format("src/ops/{0}/{0}_cases.cpp", row.second);
    if (tree.has_file(cases) && tree.text(cases).find("\"" + row.first + "\"") == std::string_view::npos) {
      found.push_back(fmt::format("{}: {} has no case of it", where, cases));
    }
  }
  check_stray_op_folders(tree, folders, found);
  return found;
}

Violations check_diagnostic_pages(const Tree& tree) {
  Violations found;
  std::set<std::string> codes;
  std::string previous;
  for (const Row& row : table_rows(tree.text(kDiagnostics), "PIPER_DIAGNOSTIC")) {
    const std::string where = place(kDiagnostics, row);
    if (row.first <= previous) found.push_back(fmt::format("{}: the rows are not sorted by code", where));
    previous = row.first;
    codes.insert(row.first);
    const std::string page = fmt::format("explain/{}.md", row.first);
    require_file(tree, where, page, found);
    if (tree.has_file(page) && !tree.text(page).starts_with(fmt::format("# {}: ", row.first))) {
      found.push_back(fmt::format("{}:1: does not begin with `# {}: `", page, row.first));
    }
  }
  if (codes.empty()) found.push_back(fmt::format("{}: no row PIPER_DIAGNOSTIC(…) was found", kDiagnostics));
  for (const std::string& page : tree.list("explain/", {".md"})) {
    const std::string code = page.substr(8, page.size() - 11);
    if (!codes.count(code)) found.push_back(fmt::format("{}: {} has no such code", page, kDiagnostics));
  }
  return found;
}

Violations check_diagnostics_tested(const Tree& tree) {
  Violations found;
  const std::vector<std::string> texts = test_texts(tree);
  for (const Row& row : rows_of(tree, kDiagnostics, "PIPER_DIAGNOSTIC", found)) {
    if (!any_has_word(tree, texts, row.first)) found.push_back(fmt::format("{}: no file of tests/ names it", place(kDiagnostics, row)));
  }
  return found;
}

Violations check_diagnostics_used(const Tree& tree) {
  Violations found;
  const std::vector<std::string> sources = tree.list("src/", {".cpp"});
  for (const Row& row : rows_of(tree, kDiagnostics, "PIPER_DIAGNOSTIC", found)) {
    if (!any_has_word(tree, sources, row.first)) found.push_back(fmt::format("{}: nothing in src/ reports it", place(kDiagnostics, row)));
  }
  return found;
}

Violations check_commands(const Tree& tree) {
  Violations found;
  const std::string path = "src/cli/cli.h";
  for (const Line& line : lines_of(tree.text(path))) {
    if (!line.text.starts_with("#define PIPER_COMMANDS(X)")) continue;
    std::string_view rest = line.text.substr(line.text.find(')') + 1);
    for (size_t i = rest.find("X("); i != std::string_view::npos; i = rest.find("X(", i + 1)) {
      const std::string name(rest.substr(i + 2, rest.find(')', i) - i - 2));
      require_file(tree, at(path, line), fmt::format("src/cli/{}.cpp", name), found);
    }
    return found;
  }
  found.push_back(path + ": the list PIPER_COMMANDS was not found");
  return found;
}

Violations check_strategies(const Tree& tree) {
  Violations found;
  const std::string page = "docs/strategies.md";
  const std::vector<std::string> paths = tree.list("strategies/", {".piper"});
  if (paths.empty()) found.emplace_back("strategies: there are no strategy files");
  for (const std::string& path : paths) {
    if (tree.text(page).find("(../" + path + ")") == std::string_view::npos) {
      found.push_back(fmt::format("{}: {} does not link to it", path, page));
    }
  }
  return found;
}

}  // namespace piper::tidy
