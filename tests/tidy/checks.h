// The checks of the tree. Each returns what it found as "path:line: what is wrong", nothing when all is well. A table that
// cannot be found is a violation too: a check that looks at nothing would always pass.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/tree.h"

namespace piper::tidy {

using Violations = std::vector<std::string>;

// include_checks.cpp
Violations check_include_direction(const Tree& tree);  // rooms of src/ include what ARCHITECTURE.md says
Violations check_library_borders(const Tree& tree);    // headers of libraries stay in their folders
Violations check_strategy_words(const Tree& tree);     // src/runtime speaks of no strategy

// table_checks.cpp
Violations check_passes(const Tree& tree);              // passes.def: source, golden, section in docs/passes.md
Violations check_ops(const Tree& tree);                 // ops.def: three files a folder, a case for every operation
Violations check_diagnostic_pages(const Tree& tree);    // diagnostics.def: sorted, a page in explain/ for each, no others
Violations check_diagnostics_tested(const Tree& tree);  // a test or golden text names each
Violations check_diagnostics_used(const Tree& tree);    // something in src/ reports each
Violations check_commands(const Tree& tree);            // every subcommand has its file
Violations check_strategies(const Tree& tree);          // every shipped strategy is in docs/strategies.md

// text_checks.cpp
Violations check_sizes(const Tree& tree);          // .cpp and .h up to 600 lines
Violations check_machine_paths(const Tree& tree);  // in any file, also binary ones
Violations check_white_space(const Tree& tree);    // no tabs, nothing at the end of a line, a newline at the end
Violations check_shell_scripts(const Tree& tree);  // set -euo pipefail before anything else
Violations check_links(const Tree& tree);          // targets of links in .md files exist
Violations check_docs_index(const Tree& tree);     // docs/README.md names every page of docs/

}  // namespace piper::tidy
