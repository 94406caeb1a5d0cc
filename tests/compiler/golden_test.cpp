// The DAG's text before and after every pass.
#include <catch2/catch.hpp>

#include "cli/compile_model.h"
#include "passes/pipeline.h"
#include "tests/compiler/golden.h"

using namespace piper;

TEST_CASE("every pass changes the DAG as its golden text shows") {
  std::string previous;
  for (const std::string& pass : passes::pass_names()) {
    const auto cases = testing::golden_cases("tests/golden/passes/" + pass);
    CHECK_FALSE(cases.empty());
    for (const testing::GoldenCase& c : cases) {
      INFO(c.path);
      support::SourceMap sources;
      support::Diagnostics diagnostics(sources);
      cli::CompileOptions options;
      options.sets = c.sets;
      ir::Model model;
      ir::Strategy strategy;
      const bool loaded = cli::load_strategy(c.model, c.path, options, diagnostics, model, strategy);
      INFO(diagnostics.render());
      REQUIRE(loaded);
      std::string before = "(nothing: the first pass)\n", after;
      passes::run_passes(std::move(model), strategy, diagnostics, [&](const std::string& name, const ir::TrainingDag& dag) {
        if (name == previous) before = to_string(dag);
        if (name == pass) after = to_string(dag);
      }, pass);
      INFO(diagnostics.render());
      REQUIRE_FALSE(diagnostics.has_errors());
      CHECK(testing::compare_golden(c, "// before " + pass + "\n" + before + "// after " + pass + "\n" + after) == "");
    }
    previous = pass;
  }
}
