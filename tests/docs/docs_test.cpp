// Every fenced block of the documentation does what it says. With PIPER_UPDATE_GOLDEN=1 the outputs that pages show are
// replaced by the real ones.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/compile_model.h"
#include "frontend/piper/format.h"
#include "tests/docs/blocks.h"
#include "tests/temp_folder.h"

namespace fs = std::filesystem;
using namespace piper;
using docs::Block;

namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> pages() {
  std::vector<std::string> list{"README.md"};
  for (const auto& file : fs::directory_iterator("docs")) {
    if (file.path().extension() == ".md") list.push_back(file.path().string());
  }
  std::sort(list.begin(), list.end());
  return list;
}

// Where a page's commands run: its own folder, with the models and strategies of the repository.
struct Scratch : test::TempFolder {
  Scratch() {
    for (const char* name : {"models", "strategies"}) fs::create_symlink(fs::absolute(name), path() / name);
  }
};

// A strategy with a loss can be compiled; less is a part of one.
bool is_whole(const Block& block) {
  auto any = [&](const char* begin) {
    return std::any_of(block.text.begin(), block.text.end(),
                       [&](const std::string& line) { return line.rfind(begin, 0) == 0; });
  };
  return any("train {") && any("  loss");
}

// A strategy compiles against its model; a part of one parses. "" or what is wrong.
std::string check_strategy(const Block& block, const Scratch& scratch) {
  const std::string text = joined(block.text);
  const std::string path = scratch.write(block.file.empty() ? "block.piper" : block.file, text);
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  if (!is_whole(block)) {
    frontend::format_file(sources.add(path, text), diagnostics);
    return diagnostics.has_errors() ? diagnostics.render() : "";
  }
  if (block.model.empty())
    return "a whole strategy needs the model it is for: <!-- model: models/gpt_tiny/gpt_tiny.onnx -->\n";
  cli::compile(block.model, path, {}, diagnostics);
  return diagnostics.has_errors() ? diagnostics.render() : "";
}

std::string check_block(const Block& block, const Scratch& scratch, std::vector<std::string>* actual) {
  *actual = block.text;
  for (const std::string& mark : block.unknown_marks) return fmt::format("nothing is known of the mark `{}`\n", mark);
  if (!block.not_run.empty()) return block.run ? "marked both `run` and `not run`\n" : "";
  if (block.language == "piper") return check_strategy(block, scratch);
  if (!block.file.empty()) {
    scratch.write(block.file, joined(block.text));
    return "";
  }
  if (!block.output_of.empty()) {
    actual->clear();
    return docs::run_block(block, scratch.path().string(), actual);
  }
  if (!block.run) return "neither marked `<!-- run -->` nor `<!-- not run: why -->`\n";
  if (block.language != "sh" && block.language != "console")
    return fmt::format("`run` is for sh and console, this is `{}`\n", block.language);
  actual->clear();
  return docs::run_block(block, scratch.path().string(), actual);
}

// The page with other texts in its blocks.
std::string replaced(const std::string& text, const std::vector<Block>& blocks,
                     const std::vector<std::vector<std::string>>& texts) {
  std::vector<std::string> out;
  const std::vector<std::string> lines = docs::lines_of(text);
  size_t next = 0;
  for (size_t b = 0; b < blocks.size(); b++) {
    const size_t fence = static_cast<size_t>(blocks[b].line);  // lines up to it, the fence included
    out.insert(out.end(), lines.begin() + static_cast<std::ptrdiff_t>(next),
               lines.begin() + static_cast<std::ptrdiff_t>(fence));
    out.insert(out.end(), texts[b].begin(), texts[b].end());
    next = fence + blocks[b].text.size();
  }
  out.insert(out.end(), lines.begin() + static_cast<std::ptrdiff_t>(next), lines.end());
  return joined(out);
}

}  // namespace

TEST_CASE("the blocks of every page do what they say", "[docs]") {
  const char* only = std::getenv("PIPER_DOCS_PAGE");
  for (const std::string& page : pages()) {
    if (only != nullptr && page.find(only) == std::string::npos) continue;
    const std::string text = read(page);
    const std::vector<Block> blocks = docs::blocks_of(page, text);
    const Scratch scratch;
    std::vector<std::vector<std::string>> actual(blocks.size());
    for (size_t b = 0; b < blocks.size(); b++) {
      const std::string wrong = check_block(blocks[b], scratch, &actual[b]);
      INFO(blocks[b].where() << ": " << wrong);
      CHECK(wrong.empty());
    }
    if (std::getenv("PIPER_UPDATE_GOLDEN") != nullptr)
      std::ofstream(page, std::ios::binary) << replaced(text, blocks, actual);
  }
}

TEST_CASE("marks, blocks and commands are found", "[docs]") {
  const auto blocks = docs::blocks_of("a.md",
                                      "text\n\n<!-- run -->\n```console\n$ one \\\n  two\nout\n$ three\n```\n<!-- not "
                                      "run: no -->\n\n```\nx\n```\n<!-- what -->\n```sh\n```\n");
  REQUIRE(blocks.size() == 3);
  CHECK(blocks[0].run);
  CHECK(blocks[0].line == 4);
  CHECK(blocks[0].language == "console");
  const auto commands = docs::commands_of(blocks[0]);
  REQUIRE(commands.size() == 2);
  CHECK(commands[0].line == "one \\\n  two");
  CHECK(commands[0].output == std::vector<std::string>{"out"});
  CHECK(commands[1].output.empty());
  CHECK(blocks[1].not_run.empty());  // a line between
  CHECK(blocks[2].unknown_marks == std::vector<std::string>{"what"});
  std::vector<std::string> actual;
  CHECK(check_block(blocks[1], Scratch(), &actual) != "");
}

TEST_CASE("shown output may leave things out", "[docs]") {
  using Lines = std::vector<std::string>;
  CHECK(docs::matches({"a", "b"}, {"a", "b"}));
  CHECK_FALSE(docs::matches({"a"}, {"a", "b"}));
  CHECK_FALSE(docs::matches({"a", "b"}, {"a"}));
  CHECK(docs::matches({"a in … s", "…"}, {"a in 0.1 s", "x", "y"}));
  CHECK(docs::matches({"…", "z"}, {"x", "y", "z"}));
  CHECK_FALSE(docs::matches({"a in … s"}, {"b in 0.1 s"}));
  CHECK(docs::matches({"in 0.10 s (3.1 ms a step)"}, {"in 12 s (0.2 ms a step)"}));
  CHECK_FALSE(docs::matches({"in 0.10 KiB"}, {"in 0.11 KiB"}));
  CHECK(docs::matches(Lines{}, Lines{}));
}

TEST_CASE("commands run in the page's folder, and failures are seen", "[docs]") {
  const Scratch scratch;
  auto run = [&](const std::string& text) {
    const auto blocks = docs::blocks_of("a.md", text);
    std::vector<std::string> actual;
    return check_block(blocks.at(0), scratch, &actual);
  };
  CHECK(run("<!-- run -->\n```sh\ntouch made\n```\n") == "");
  CHECK(run("<!-- run -->\n```console\n$ ls made\nmade\n```\n") == "");
  CHECK(run("<!-- run -->\n```console\n$ ls made\nother\n```\n") != "");
  CHECK(run("<!-- run -->\n```sh\nfalse\n```\n") != "");
  CHECK(run("<!-- run -->\n```console\n$ piper inspect nothing.onnx\nerror[E0001]: …\n```\n") == "");
  CHECK(run("<!-- output of: ls made -->\n```\nmade\n```\n") == "");
  CHECK(run("<!-- setup: touch other -->\n<!-- run -->\n```console\n$ ls other\nother\n```\n") == "");
  CHECK(run("```piper\nmesh dev[\n```\n") != "");
  CHECK(run("```piper\nmesh dev[pp = pp]\n```\n") == "");
  CHECK(run("```piper\ntrain {\n}\n```\n") == "");
  CHECK(run("```piper\ntrain {\n  loss mean(output \"x\")\n}\n```\n") != "");
  const std::string model = "<!-- model: models/mlp/mlp.onnx -->\n```piper\ntrain {\n  loss mse(prediction = output \"";
  CHECK(run(model + "prediction\", target = input \"y\")\n}\n```\n") == "");
  CHECK(run(model + "other\", target = input \"y\")\n}\n```\n") != "");
}
