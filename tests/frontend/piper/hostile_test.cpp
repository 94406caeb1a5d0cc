// Inputs that no one writes by hand: they end soon, with a message, whatever they are.
#include <catch2/catch.hpp>
#include <chrono>
#include <random>

#include "tests/frontend/piper/toy_model.h"

using namespace piper;

namespace {

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; i++) out += text;
  return out;
}

// The first line of what is said; checks that it did not take long.
std::string complaint(const std::string& text) {
  auto begin = std::chrono::steady_clock::now();
  test::Loaded loaded = test::load(text, nullptr);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  CHECK(seconds.count() < 30);
  CHECK(!loaded.ok());
  return loaded.errors.substr(0, loaded.errors.find('\n'));
}

}  // namespace

TEST_CASE("what is not a strategy file", "[hostile]") {
  CHECK(complaint("let a = \"\xC3\x28\"") == "error[E0002]: this byte is not UTF-8");
  CHECK(complaint(std::string(10 << 20, 'a')).starts_with("error[E0003]"));
  CHECK(complaint(std::string("let a = \0 1", 11)).starts_with("error[E0102]"));
  CHECK(complaint(repeat("\x01\x02", 1000)).starts_with("error[E0102]"));
}

TEST_CASE("deep nesting", "[hostile]") {
  CHECK(complaint("let a = " + repeat("(", 200000)).starts_with("error[E0103]"));
  CHECK(complaint("let a = " + repeat("[", 5000) + repeat("]", 5000)).starts_with("error[E0103]"));
  CHECK(complaint("let a = " + repeat("- ", 20000) + "1").starts_with("error[E0103]"));
  CHECK(complaint("let a = " + repeat("not ", 20000) + "true").starts_with("error[E0103]"));
  CHECK(complaint("let a = 1" + repeat(" + 1", 20000)).starts_with("error[E0103]"));
  CHECK(complaint("let a = " + repeat("if true then 1 else ", 20000) + "1").starts_with("error[E0103]"));
  CHECK(complaint("let a = " + repeat("let b = 1 in ", 20000) + "1").starts_with("error[E0103]"));
  CHECK(complaint(repeat("for i in 0..1 { ", 5000)).starts_with("error[E0103]"));
}

TEST_CASE("evaluations without end", "[hostile]") {
  CHECK(complaint("fn f(n) = f(n + 1) let a = f(0)").starts_with("error[E0204]: recursion of `f` is too deep"));
  CHECK(complaint("fn f(n) = if n == 0 then 0 else f(n - 1) + f(n - 1) let a = f(60)") == "error[E0204]: evaluation of `f` takes too long");
  CHECK(complaint("let a = 0..9000000000000000000").starts_with("error[E0204]"));
  CHECK(complaint("let a = range(-9000000000000000000, 9000000000000000000, 1)").starts_with("error[E0204]"));
  std::string doubling = "let x0 = 0..1000\n";
  for (int i = 1; i < 60; i++) doubling += "let x" + std::to_string(i) + " = x" + std::to_string(i - 1) + " ++ x" + std::to_string(i - 1) + "\n";
  CHECK(complaint(doubling).starts_with("error[E0204]"));
  CHECK(complaint("let a = [[i + j for i in 0..100000] for j in 0..100000]").starts_with("error[E0204]"));
  CHECK(complaint("let a = [F(mb = i) for i in 0..9000000] split all() into 2 as mb").starts_with("error[E0204]"));
  CHECK(complaint("let a = b let b = a").starts_with("error[E0204]"));
}

TEST_CASE("long inputs that are right load", "[hostile]") {
  std::string text = "use pipeline\n";
  for (int i = 0; i < 3000; i++) text += "let v" + std::to_string(i) + " = [" + std::to_string(i) + ", 1.5, 2MiB]\n";
  CHECK(test::load(text, nullptr).ok());
  // A recursion of some thousand calls is fine.
  CHECK(test::load("fn f(n) = if n == 0 then [] else [n] ++ f(n - 1) let a = len(f(2000)) assert a == 2000, \"all\"", nullptr).ok());
}

// Any damage to a file gives a message and an end, never a crash.
TEST_CASE("damaged files", "[hostile]") {
  const std::string whole =
      "use pipeline\nparam pp = 4 \"ranks\"\nmesh dev[pp = pp, dp = 2]\ntag layer = i where path \"transformer.h.{i}.**\" and not has x\n"
      "tag stage = balanced(layer, pp)\nfor s in 0..pp { place all(stage = s) on dev[pp = s] }\nreplicate all() over dp zero 1 bucket 25MiB\n"
      "split all() into 4 as mb\nfor r in 0..pp { order pipeline.one_f_one_b(r, pp, 4) }\n"
      "train { loss cross_entropy(logits = output \"logits\", target = input \"labels\") optimizer adamw(lr = 1e-3) batch 8 }\n";
  const std::string alphabet = "()[]{}\"#=,.|+-*/%<> \n\t01aFB\xC3\xA9if";
  std::mt19937 random(11);
  const ir::Model model = test::toy_model(4);
  for (int round = 0; round < 1500; round++) {
    std::string text = whole;
    for (size_t edits = 1 + random() % 3; edits > 0; edits--) {
      size_t at = random() % text.size();
      std::string letter(1, alphabet[random() % alphabet.size()]);
      size_t kind = random() % 3;  // drop some letters, put one in, change one
      text = text.substr(0, at) + (kind > 0 ? letter : "") + text.substr(std::min(text.size(), at + (kind == 0 ? 1 + random() % 6 : kind == 1 ? 0 : 1)));
    }
    test::Loaded loaded = test::load(text, &model);
    INFO(text);
    CHECK(loaded.ok() == (loaded.errors.find("error[") == std::string::npos));
  }
}
