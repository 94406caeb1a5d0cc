// The checks find what they are for: each is given a tree without fault and the same tree with one planted.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/tidy/checks.h"

using namespace piper::tidy;

namespace {

using Check = Violations (*)(const Tree&);

Tree with(Tree tree, const std::string& path, std::string text) {
  tree.files[path] = std::move(text);
  return tree;
}

Tree without(Tree tree, const std::string& path) {
  REQUIRE(tree.files.erase(path) == 1);
  return tree;
}

void expect_clean(Check check, const Tree& tree) {
  for (const std::string& violation : check(tree)) FAIL_CHECK(violation);
}

// Exactly one violation, which says all of `parts`.
void expect_one(Check check, const Tree& tree, const std::vector<std::string>& parts) {
  const Violations found = check(tree);
  REQUIRE(found.size() == 1);
  for (const std::string& part : parts) CHECK_THAT(found[0], Catch::Contains(part));
}

Tree pass_tree() {
  return {{{"src/passes/passes.def", "// comment\nPIPER_PASS(place, \"placements\")\n"},
           {"src/passes/place.cpp", ""},
           {"tests/golden/passes/place/two.txt", ""},
           {"docs/passes.md", "# Passes\n\n## place\n\ntext\n"}}};
}

Tree op_tree() {
  return {{{"src/ops/ops.def", "PIPER_OP(Relu, unary)\nPIPER_OP(Tanh, unary)  // x -> y\n"},
           {"src/ops/unary/unary.cpp", ""},
           {"src/ops/unary/unary_cpu.cpp", ""},
           {"src/ops/unary/unary_cases.cpp", "for (auto op : {\"Relu\", \"Tanh\"})"}}};
}

Tree diagnostic_tree() {
  return {{{"src/support/diagnostics.def", "PIPER_DIAGNOSTIC(E0001, Error, \"a, b\")\nPIPER_DIAGNOSTIC(W0001, Warning, \"c\")\n"},
           {"explain/E0001.md", "# E0001: a, b\n"},
           {"explain/W0001.md", "# W0001: c\n"},
           {"src/passes/place.cpp", "report(Code::E0001); report(Code::W0001);"},
           {"tests/golden/fail_a.txt", "error[E0001]: text\nwarning[W0001]: text\n"}}};
}

}  // namespace

TEST_CASE("a room that includes upwards is found", "[planted]") {
  const Tree good = {{{"src/ir/dag.h", "#include \"support/ids.h\"\n#include <vector>\n"},
                      {"src/verify/verify.cpp", "#include \"plan/plan.h\"\n#include \"ir/types.h\"\n"},
                      {"src/runtime/weights.cpp", "#include \"frontend/onnx/initializer_reader.h\"\n#include \"ops/kernel.h\"\n"}}};
  expect_clean(check_include_direction, good);
  expect_one(check_include_direction, with(good, "src/ir/dag.h", "\n#include \"plan/plan.h\"\n"),
             {"src/ir/dag.h:2", "`ir` may not include `plan/plan.h`"});
  expect_one(check_include_direction, with(good, "src/verify/a.h", "#include \"ir/dag.h\""), {"`verify`", "ir/dag.h"});
  expect_one(check_include_direction, with(good, "src/runtime/a.h", "#include \"frontend/onnx/import.h\""), {"`runtime`"});
  expect_one(check_include_direction, with(good, "src/runtime/a.h", "#include \"ops/op.h\""), {"ops/op.h"});
  expect_one(check_include_direction, with(good, "src/support/a.h", "#include \"ir/types.h\""), {"`support`"});
  expect_one(check_include_direction, with(good, "src/newroom/a.h", ""), {"is no room"});
}

TEST_CASE("a library's header outside its folder is found", "[planted]") {
  const Tree good = {{{"src/runtime/gloo_transport.cpp", "#include <gloo/context.h>\n"},
                      {"src/ops/cpu/gemm.cpp", "#include <dnnl.hpp>\n"},
                      {"tests/frontend/onnx/builder.h", "#include <onnx/onnx_pb.h>\n"},
                      {"src/plan/encode.cpp", "#include \"plan.pb.h\"\n#include <google/protobuf/message.h>\n"}}};
  expect_clean(check_library_borders, good);
  expect_one(check_library_borders, with(good, "src/passes/a.cpp", "#include <dnnl.hpp>\n"), {"src/passes/a.cpp:1", "oneDNN", "src/ops/"});
  expect_one(check_library_borders, with(good, "src/codegen/a.cpp", "#include \"plan.pb.h\"\n"), {"src/plan/"});
  expect_one(check_library_borders, with(good, "src/cli/a.cpp", "#include <antlr4-runtime.h>\n"), {"ANTLR"});
  expect_one(check_library_borders, with(good, "tests/runtime/a.cpp", "#include <onnx/onnx_pb.h>\n"), {"ONNX"});
  expect_one(check_library_borders, with(good, "src/ops/a.cpp", "#include <gloo/context.h>\n"), {"Gloo"});
}

TEST_CASE("a word of strategies in the runtime is found", "[planted]") {
  const std::string path = "src/runtime/executor.cpp";
  const Tree good = {{{path, "in.microbatch < plan.microbatches; SIGPIPE; ScheduleKind::kCosine; kZero\n"}}};
  expect_clean(check_strategy_words, good);
  for (const char* planted : {"run_pipeline();", "// as in 1F1B", "int pp = 2;", "class MicrobatchQueue {", "num_microbatches = 3",
                              "GPipe", "if (zero1)", "is_replica", "interleaved", "kExpert", "int dp;"}) {
    INFO(planted);
    expect_one(check_strategy_words, with(good, path, std::string("\n") + planted + "\n"), {path + ":2"});
  }
  CHECK(check_strategy_words(Tree{}).size() == 1);
}

TEST_CASE("a pass without its files is found", "[planted]") {
  expect_clean(check_passes, pass_tree());
  expect_one(check_passes, without(pass_tree(), "src/passes/place.cpp"), {"passes.def:2", "`place`", "src/passes/place.cpp is missing"});
  expect_one(check_passes, without(pass_tree(), "tests/golden/passes/place/two.txt"), {"no golden text"});
  expect_one(check_passes, with(pass_tree(), "docs/passes.md", "## places\n"), {"docs/passes.md"});
  expect_one(check_passes, with(pass_tree(), "src/passes/passes.def", ""), {"no row"});
}

TEST_CASE("an operation without its files or a case is found", "[planted]") {
  expect_clean(check_ops, op_tree());
  expect_one(check_ops, without(op_tree(), "src/ops/unary/unary_cpu.cpp"), {"unary_cpu.cpp is missing"});
  expect_one(check_ops, without(op_tree(), "src/ops/unary/unary_cases.cpp"), {"unary_cases.cpp is missing"});
  expect_one(check_ops, with(op_tree(), "src/ops/unary/unary_cases.cpp", "{\"Relu\"}"), {"ops.def:2", "`Tanh`", "no case"});
  expect_one(check_ops, with(op_tree(), "src/ops/old/old_cases.cpp", ""), {"src/ops/old/old_cases.cpp", "no row"});
  expect_one(check_ops, with(Tree{}, "src/ops/ops.def", "// empty\n"), {"no row"});
}

TEST_CASE("a diagnostic without a page is found", "[planted]") {
  expect_clean(check_diagnostic_pages, diagnostic_tree());
  expect_one(check_diagnostic_pages, without(diagnostic_tree(), "explain/W0001.md"), {"diagnostics.def:2", "explain/W0001.md is missing"});
  expect_one(check_diagnostic_pages, with(diagnostic_tree(), "explain/E0001.md", "# E0002: a\n"), {"explain/E0001.md:1"});
  expect_one(check_diagnostic_pages, with(diagnostic_tree(), "explain/E0009.md", "# E0009: a\n"), {"no such code"});
  const std::string swapped = "PIPER_DIAGNOSTIC(W0001, Warning, \"c\")\nPIPER_DIAGNOSTIC(E0001, Error, \"a\")\n";
  expect_one(check_diagnostic_pages, with(diagnostic_tree(), "src/support/diagnostics.def", swapped), {"not sorted"});
}

TEST_CASE("a diagnostic that nothing tests or reports is found", "[planted]") {
  expect_clean(check_diagnostics_tested, diagnostic_tree());
  expect_clean(check_diagnostics_used, diagnostic_tree());
  expect_one(check_diagnostics_tested, with(diagnostic_tree(), "tests/golden/fail_a.txt", "[E0001]\n"), {"`W0001`", "no file of tests/"});
  // A longer word, or a mention in these tests, is not a test.
  const Tree elsewhere = with(with(diagnostic_tree(), "tests/golden/fail_a.txt", "E0001 W00012"), "tests/tidy/a.cpp", "W0001");
  expect_one(check_diagnostics_tested, elsewhere, {"`W0001`"});
  expect_one(check_diagnostics_used, with(diagnostic_tree(), "src/passes/place.cpp", "Code::W0001"), {"`E0001`", "nothing in src/"});
}

TEST_CASE("a subcommand without a file is found", "[planted]") {
  const Tree good = {{{"src/cli/cli.h", "#define PIPER_COMMANDS(X) X(check) X(show)\n"}, {"src/cli/check.cpp", ""}, {"src/cli/show.cpp", ""}}};
  expect_clean(check_commands, good);
  expect_one(check_commands, without(good, "src/cli/show.cpp"), {"src/cli/cli.h:1", "src/cli/show.cpp is missing"});
  expect_one(check_commands, Tree{}, {"PIPER_COMMANDS"});
}

TEST_CASE("a strategy or page that the docs forget is found", "[planted]") {
  const Tree good = {{{"strategies/dp.piper", ""},
                      {"docs/strategies.md", "[dp](../strategies/dp.piper)\n"},
                      {"docs/README.md", "[strategies](strategies.md)\n"}}};
  expect_clean(check_strategies, good);
  expect_clean(check_docs_index, good);
  expect_one(check_strategies, with(good, "strategies/new.piper", ""), {"strategies/new.piper", "docs/strategies.md"});
  expect_one(check_docs_index, with(good, "docs/new.md", ""), {"docs/new.md", "docs/README.md"});
}

TEST_CASE("a file that is too long is found", "[planted]") {
  std::string text;
  for (int i = 0; i < 600; i++) text += "int a;\n";
  expect_clean(check_sizes, {{{"src/ir/a.cpp", text}, {"src/ir/a.def", text + text}}});
  expect_one(check_sizes, {{{"src/ir/a.cpp", text + "int b;\n"}}}, {"src/ir/a.cpp", "601"});
}

TEST_CASE("a path of a machine is found, in binary files too", "[planted]") {
  expect_clean(check_machine_paths, {{{"docs/a.md", "a network/b, /usr/bin, ~/work\n"}}});
  const std::string planted = std::string("\n\0\x01", 3) + std::string("/wo") + "rk/here";
  expect_one(check_machine_paths, {{{"models/a.onnx", planted}}}, {"models/a.onnx:2"});
}

TEST_CASE("unclean white space is found", "[planted]") {
  expect_clean(check_white_space, {{{"src/a.cpp", "int a;\n\n"}, {"tests/golden/a.piper", "a \t\n"}, {"models/text.txt", "a "}}});
  expect_one(check_white_space, {{{"src/a.cpp", "\n\tint a;\n"}}}, {"src/a.cpp:2", "tab"});
  expect_one(check_white_space, {{{"docs/a.md", "text \n"}}}, {"docs/a.md:1", "space"});
  expect_one(check_white_space, {{{"scripts/run", "a\r\n"}}}, {"carriage return"});
  expect_one(check_white_space, {{{"CMakeLists.txt", "a"}}}, {"no end"});
}

TEST_CASE("a shell script that goes on after errors is found", "[planted]") {
  const std::string good = "#!/usr/bin/env bash\n# comment\n\nset -euo pipefail\nls\n";
  expect_clean(check_shell_scripts, {{{"scripts/run", good}, {"src/a.cpp", "int a;\n"}}});
  expect_one(check_shell_scripts, {{{"scripts/run", "#!/bin/sh\nls\nset -euo pipefail\n"}}}, {"scripts/run:2"});
  expect_one(check_shell_scripts, Tree{}, {"no shell script"});
}

TEST_CASE("a link that leads nowhere is found", "[planted]") {
  const Tree good = {{{"README.md", "[a](docs/a.md) and [b](docs/) [c](https://x.y/z) [d](#here)\n`[e](no.md)`\n```\n[f](no.md)\n```\n"},
                      {"docs/a.md", "[up](../README.md#part) [root](..)\n"}}};
  expect_clean(check_links, good);
  expect_one(check_links, with(good, "docs/a.md", "\n[gone](gone.md)\n"), {"docs/a.md:2", "docs/gone.md"});
  expect_one(check_links, with(good, "docs/a.md", "text [x](b.md#part)\n"), {"docs/b.md"});
}

TEST_CASE("a tree is loaded without what builds leave behind", "[planted]") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("piper_tidy_test." + std::to_string(getpid()));
  fs::remove_all(root);
  for (const char* path : {"src/a.cpp", "build/b.cpp", "build-x/c.cpp", "x.plan/plan.pb", ".ci/run"}) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << path;
  }
  const Tree tree = load_tree(root);
  fs::remove_all(root);
  REQUIRE(tree.files.size() == 2);
  CHECK(tree.text("src/a.cpp") == "src/a.cpp");
  CHECK(tree.text(".ci/run") == ".ci/run");
  CHECK(tree.has("src"));
  CHECK_FALSE(tree.has("sr"));
}
