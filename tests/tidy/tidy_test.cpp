// The checks on the repository itself. CTest runs this in its root.
#include <catch2/catch.hpp>

#include "tests/tidy/checks.h"

using namespace piper::tidy;

namespace {

const Tree& repository() {
  static const Tree kTree = load_tree(".");
  return kTree;
}

// One failure a violation.
void expect_none(Violations (*check)(const Tree&)) {
  REQUIRE(repository().has_file("src/support/diagnostics.def"));
  const Violations found = check(repository());
  for (const std::string& violation : found) FAIL_CHECK(violation);
  SUCCEED("the tree was checked");
}

}  // namespace

TEST_CASE("rooms include only what is below them") { expect_none(check_include_direction); }
TEST_CASE("headers of libraries stay in their folders") { expect_none(check_library_borders); }
TEST_CASE("the runtime has no word of strategies") { expect_none(check_strategy_words); }

TEST_CASE("every pass has a source, a golden text and a section in the docs") { expect_none(check_passes); }
TEST_CASE("every operation has its files and a case") { expect_none(check_ops); }
TEST_CASE("every diagnostic has an explain page") { expect_none(check_diagnostic_pages); }
TEST_CASE("every diagnostic is in a test") { expect_none(check_diagnostics_tested); }
TEST_CASE("every diagnostic is reported by something") { expect_none(check_diagnostics_used); }
TEST_CASE("every subcommand has a file") { expect_none(check_commands); }
TEST_CASE("every strategy is in the docs") { expect_none(check_strategies); }

TEST_CASE("source files are short") { expect_none(check_sizes); }
TEST_CASE("no file has a path of a machine") { expect_none(check_machine_paths); }
TEST_CASE("white space is clean") { expect_none(check_white_space); }
TEST_CASE("shell scripts stop at errors") { expect_none(check_shell_scripts); }
TEST_CASE("links in the docs lead somewhere") { expect_none(check_links); }
TEST_CASE("the index of the docs is complete") { expect_none(check_docs_index); }
