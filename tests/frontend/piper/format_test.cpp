// `piper fmt`: what the style looks like, and that it changes nothing but the looks.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "frontend/piper/format.h"
#include "support/diff.h"

using namespace piper;

namespace {

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The formatted text; "" after a mistake, and its message in `errors`.
std::string format(const std::string& text, std::string* errors = nullptr) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  const auto out = frontend::format_file(sources.add("a.piper", text), diagnostics);
  if (errors) *errors = diagnostics.render();
  CHECK(out.has_value() == !diagnostics.has_errors());
  return out.value_or("");
}

void check(const std::string& text, const std::string& expected) {
  const std::string once = format(text);
  INFO(support::unified_diff(expected, once, "expected", "formatted"));
  CHECK((once == expected));
  CHECK((format(once) == once));
}

std::vector<std::string> piper_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".piper") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("words are set apart by one space", "[format]") {
  check("mesh dev[pp=2,dp = 1 ]\nplace   all( stage=0 ,mb = 0 .. 4)on dev[pp=0]  p2p_stream \"x\"\n"
        "tag a=i   where path\"h.{i}.**\"or not has b\norder [F(a=0),B(a=*),I(b=-)]\n",
        "mesh dev[pp = 2, dp = 1]\nplace all(stage = 0, mb = 0..4) on dev[pp = 0] p2p_stream \"x\"\n"
        "tag a = i where path \"h.{i}.**\" or not has b\norder [F(a = 0), B(a = *), I(b = -)]\n");
  check("let x=-a*( b+c )%2--1\nlet y=f(a)[0]..lib.g(b=1,c = [ ],d=[1,2,])\nfn z( )=1", "let x = -a * (b + c) % 2 - -1\nlet y = f(a)[0]..lib.g(b = 1, c = [], d = [1, 2])\nfn z() = 1\n");
}

TEST_CASE("long statements are broken where they may be", "[format]") {
  const std::string name(40, 'n');
  check("let x = " + name + " ++ " + name + " ++ " + name, "let x = " + name + "\n  ++ " + name + "\n  ++ " + name + "\n");
  check("let x = [" + name + ", " + name + ", " + name + "]", "let x = [\n  " + name + ",\n  " + name + ",\n  " + name + "\n]\n");
  check("let x = flatten([[" + name + ", i] for " + name + " in a for i in " + name + "])",
        "let x = flatten([\n  [" + name + ", i]\n  for " + name + " in a\n  for i in " + name + "\n])\n");
  check("fn f(a) = let b = " + name + " in if b then " + name + " else if a then " + name + " else 2",
        "fn f(a) =\n  let b = " + name + " in\n  if b then " + name + "\n  else if a then " + name + "\n  else 2\n");
  check("replicate all() over dp bucket 4MiB reduce_stream \"" + name + "\" gather_stream \"" + name + "\" prefetch 2",
        "replicate all() over dp\n  bucket 4MiB\n  reduce_stream \"" + name + "\"\n  gather_stream \"" + name + "\"\n  prefetch 2\n");
}

TEST_CASE("blocks stay on one line when they were, and settings have columns", "[format]") {
  check("for s in 0..2 {place all(stage=s) on dev[pp=s]}\nif a {split all() into 2 as mb}else{}\n",
        "for s in 0..2 { place all(stage = s) on dev[pp = s] }\nif a { split all() into 2 as mb } else { }\n");
  check("if a { order []\n} else if b { order [] } else {\n\n order [] }",
        "if a {\n  order []\n} else if b {\n  order []\n} else {\n  order []\n}\n");
  check("train { loss mse(prediction = output \"y\", target = input \"t\")\n optimizer sgd(lr=0.1)\nno_decay param \"*.bias\"\nprecision f32\nbatch 8}",
        "train {\n  loss       mse(prediction = output \"y\", target = input \"t\")\n  optimizer  sgd(lr = 0.1)\n"
        "  no_decay   param \"*.bias\"\n  precision  f32\n  batch      8\n}\n");
  check("train { batch 8 optimizer sgd(lr = 1) }", "train { batch 8  optimizer sgd(lr = 1) }\n");
  check("param a=1 \"one\"\nparam long = 22    \"two\"\n\nparam b = 3 \"three\"", "param a = 1     \"one\"\nparam long = 22 \"two\"\n\nparam b = 3 \"three\"\n");
}

TEST_CASE("comments and blank lines stay", "[format]") {
  check("\n\n# top\n\n\n\nlet a = 1 # one\nlet bb = 22   # two  \n   # own line\n\nlet c = 3\n#end",
        "# top\n\nlet a = 1    # one\nlet bb = 22  # two\n# own line\n\nlet c = 3\n#end\n");
  check("order [ # list\n F(a = 0), # first\n # before\n B(a = 0)\n # last\n]", "order [  # list\n  F(a = 0),  # first\n  # before\n  B(a = 0)\n  # last\n]\n");
  check("for i in 0..2 { # open\n\n  order []\n\n}", "for i in 0..2 {  # open\n  order []\n}\n");
  // Where no line may be broken, the statement stays as it was written.
  check("let a = 1 + # why\n      2\n", "let a = 1 + # why\n      2\n");
  check("\xEF\xBB\xBFlet a=1\r\n# c\r\nlet b=2\r\n", "let a = 1\n# c\nlet b = 2\n");
  check("", "");
  check("# only", "# only\n");
}

TEST_CASE("a file with mistakes is left alone", "[format]") {
  std::string errors;
  CHECK(format("let a = \nlet b = 1 +\n", &errors).empty());
  CHECK(errors.find("error[E0101]") != std::string::npos);
  CHECK(format("let a = \"\\q\"\n", &errors).empty());
  CHECK(errors.find("error[E0102]") != std::string::npos);
}

TEST_CASE("what ships is formatted", "[format]") {
  const std::vector<std::string> files = piper_files("strategies");
  CHECK(files.size() >= 13);
  for (const std::string& path : files) {
    INFO("piper fmt " << path);
    const std::string text = read(path);
    CHECK(support::unified_diff(text, format(text), "a", "b") == "");
  }
}

// Spaces become other spaces and line ends, and comments come between words: formatting once is enough, loses nothing
// (format_file checks words and comments itself), and comes to an end.
TEST_CASE("formatting is idempotent, whatever the text looked like", "[format]") {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (const char* folder : {"strategies", "tests/golden/passes", "tests/golden/errors"}) {
    for (const std::string& path : piper_files(folder)) texts.push_back(read(path));
  }
  CHECK(texts.size() >= 50);
  int formatted = 0;
  for (const std::string& original : texts) {
    for (int round = 0; round < 8; round++) {
      std::string text;
      bool string = false, comment = false;
      for (const char c : original) {
        if (c == '"' && !comment) string = !string;
        if (c == '#' && !string) comment = true;
        if (c == '\n') comment = string = false;
        if (string || comment || (c != ' ' && c != '\n') || round == 0) {
          text += c;
          continue;
        }
        static const char* kSpaces[] = {" ", "  ", "\n", "\n\n\n", " # note\n", "\n# note\n", "\t", "\r\n"};
        text += c == '\n' ? "\n" : kSpaces[random() % (round < 4 ? 4 : 8)];
      }
      std::string errors;
      const std::string once = format(text, &errors);
      if (!errors.empty()) continue;
      formatted++;
      const std::string twice = format(once);
      INFO(text);
      INFO(support::unified_diff(once, twice, "once", "twice"));
      CHECK((once == twice));
    }
  }
  CHECK(formatted > 300);
}
