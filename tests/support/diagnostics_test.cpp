// How diagnostics look: blocks with carets, the short and JSON forms, order, and texts that are hard to draw.
#include "support/diagnostics.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "support/explain.h"

using namespace piper::support;

namespace {

// The span of the n-th `part` in the text of a file.
SourceSpan span_of(const SourceMap& sources, int32_t file, const std::string& part, int n = 0) {
  size_t at = sources.text(file).find(part);
  for (; n > 0; n--) at = sources.text(file).find(part, at + 1);
  REQUIRE(at != std::string::npos);
  return {file, static_cast<int32_t>(at), static_cast<int32_t>(at + part.size())};
}

}  // namespace

TEST_CASE("a block with labels in two files, notes and helps", "[diagnostics]") {
  SourceMap sources;
  int32_t a = sources.add("a.piper", "use lib\nlet x = 1\n\n\nlet y = lib.f(x)\n");
  int32_t lib = sources.add("lib.piper", "fn f(n) = n / 0\n");
  Diagnostics diagnostics(sources);
  diagnostics.report(Code::E0203, span_of(sources, lib, "n / 0"), "division by zero")
      .label(span_of(sources, a, "lib.f(x)"), "called from here")
      .label(span_of(sources, a, "x = 1"), "x comes from here")
      .note("first line\nsecond line")
      .help("do not");
  CHECK(diagnostics.render() == R"(error[E0203]: division by zero
  --> lib.piper:1:11
   |
 1 | fn f(n) = n / 0
   |           ^^^^^
  ::: a.piper:5:9
   |
 2 | let x = 1
   |     ----- x comes from here
..
 5 | let y = lib.f(x)
   |         -------- called from here
   |
   = note: first line
           second line
   = help: do not
)");
}

TEST_CASE("diagnostics are in the order of the text, those without a place last", "[diagnostics]") {
  SourceMap sources;
  int32_t a = sources.add("a.piper", "one two three\n");
  Diagnostics diagnostics(sources);
  diagnostics.report(Code::E0402, "operator `Foo` is not supported").help("export without it");
  diagnostics.report(Code::E0201, span_of(sources, a, "three"), "third");
  diagnostics.report(Code::W0201, span_of(sources, a, "one"), "first");
  CHECK(diagnostics.error_count() == 2);
  CHECK(diagnostics.render(Diagnostics::Format::kShort) ==
        "a.piper:1:1: warning[W0201]: first\na.piper:1:9: error[E0201]: third\nerror[E0402]: operator `Foo` is not supported\n");
  CHECK(diagnostics.render().ends_with("error[E0402]: operator `Foo` is not supported\n  = help: export without it\n"));
}

TEST_CASE("the JSON form has a line a diagnostic", "[diagnostics]") {
  SourceMap sources;
  int32_t a = sources.add("a.piper", "one two\n");
  Diagnostics diagnostics(sources);
  diagnostics.report(Code::E0201, span_of(sources, a, "two"), "bad \xFF byte").label(span_of(sources, a, "one"), "here").help("h");
  std::string text = diagnostics.render(Diagnostics::Format::kJson);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  auto json = nlohmann::json::parse(text);
  CHECK(json["code"] == "E0201");
  CHECK(json["severity"] == "error");
  CHECK(json["span"]["column"] == 5);
  CHECK(json["span"]["end_column"] == 8);
  CHECK(json["labels"][0]["text"] == "here");
  CHECK(json["help"][0] == "h");
}

TEST_CASE("carets stand under wide letters, tabs, combining marks and past the end", "[diagnostics]") {
  SourceMap sources;
  int32_t a = sources.add("a.piper", "\tx \xE5\xB1\x82 e\xCC\x81 z\r\nlast");
  Diagnostics diagnostics(sources);
  diagnostics.report(Code::E0201, span_of(sources, a, "z"), "after a tab, a wide letter and a combining mark");
  diagnostics.report(Code::E0201, {a, 18, 18}, "the end");
  CHECK(diagnostics.render() == "error[E0201]: after a tab, a wide letter and a combining mark\n  --> a.piper:1:9\n   |\n"
                                " 1 |     x \xE5\xB1\x82 e\xCC\x81 z\n   |            ^\n"
                                "\nerror[E0201]: the end\n  --> a.piper:2:5\n   |\n 2 | last\n   |     ^\n");
}

TEST_CASE("a span of several lines and a very long line", "[diagnostics]") {
  SourceMap sources;
  int32_t a = sources.add("a.piper", "train {\n  batch 4\n}\n");
  int32_t b = sources.add("b.piper", std::string(500, 'a') + " bad " + std::string(500, 'c'));
  Diagnostics diagnostics(sources);
  diagnostics.report(Code::E0208, {a, 0, 19}, "over lines");
  diagnostics.report(Code::E0201, span_of(sources, b, "bad"), "far right");
  std::string text = diagnostics.render();
  CHECK(text.find(" 1 | train {\n   | ^^^^^^^...\n") != std::string::npos);
  std::string line = text.substr(text.find("...aaa"));
  line = line.substr(0, line.find('\n'));
  CHECK(line.size() == 166);
  CHECK(line.find("bad") == text.substr(text.rfind("|") + 2).find("^^^"));
}

TEST_CASE("control characters do not reach the terminal", "[diagnostics]") {
  SourceMap sources;
  int32_t a = sources.add("a\x1B[31m.piper", "x \x1B[2J y\n");
  Diagnostics diagnostics(sources);
  diagnostics.report(Code::E0201, span_of(sources, a, "y"), "esc \x1B[0m").note("bell \x07");
  for (auto format : {Diagnostics::Format::kHuman, Diagnostics::Format::kShort, Diagnostics::Format::kJson}) {
    std::string text = diagnostics.render(format);
    CHECK(text.find('\x1B') == std::string::npos);
    CHECK(text.find('\x07') == std::string::npos);
  }
  CHECK(diagnostics.render(Diagnostics::Format::kHuman, true).find("\x1B[1;31m") != std::string::npos);
}

TEST_CASE("did you mean", "[diagnostics]") {
  CHECK(did_you_mean("stge", {"stage", "state"}) == "stage");
  CHECK(did_you_mean("satge", {"stage"}) == "stage");
  CHECK(did_you_mean("ovr", {"over", "zero"}) == "over");
  CHECK(did_you_mean("xyzzy", {"stage", "layer"}).empty());
  CHECK(did_you_mean("a", {"b"}).empty());
  CHECK(did_you_mean("stage", {"stage"}).empty());
  CHECK(did_you_mean("", {"a"}).empty());
}

TEST_CASE("codes by name", "[diagnostics]") {
  CHECK(parse_code("E0201") == Code::E0201);
  CHECK(parse_code("e0201") == Code::E0201);
  CHECK(!parse_code("E9999"));
  CHECK(!parse_code(""));
  CHECK(explain_page(Code::E0201).starts_with("# E0201"));
}

TEST_CASE("lines and columns", "[source]") {
  SourceMap sources;
  int32_t a = sources.add("a", "\xC3\xA4" "b\n\nlast");
  CHECK(sources.locate(a, 2).column == 2);
  CHECK(sources.locate(a, 4).line == 2);
  CHECK(sources.locate(a, 99).line == 3);
  CHECK(sources.line(a, 1) == "\xC3\xA4" "b");
  CHECK(sources.line(a, 2).empty());
  CHECK(sources.line(a, 9).empty());
  CHECK(sources.describe({a, 5, 6}) == "a:3:1");
  CHECK(sources.describe({}).empty());
}
