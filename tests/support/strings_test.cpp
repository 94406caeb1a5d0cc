#include "support/strings.h"

#include <catch2/catch.hpp>
#include <chrono>

using namespace piper::support;

namespace {

// "i=3 j=4", "" for a match without captures, "no" for none.
std::string match(const std::string& glob, const std::string& path) {
  auto found = match_path_glob(glob, path);
  if (!found) return "no";
  std::string text;
  for (const auto& [name, value] : found->captures) text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
  return text;
}

}  // namespace

TEST_CASE("globs over paths", "[strings]") {
  CHECK(match("a.b", "a.b").empty());
  CHECK(match("a.b", "a.b.c") == "no");
  CHECK(match("a.*", "a.b").empty());
  CHECK(match("a.*", "a") == "no");
  CHECK(match("a.*", "a.b.c") == "no");
  CHECK(match("a.**", "a").empty());
  CHECK(match("a.**", "a.b.c").empty());
  CHECK(match("**.c", "a.b.c").empty());
  CHECK(match("**", "").empty());
  CHECK(match("*", "") == "no");
  CHECK(match("a*.b", "abc.b").empty());
  CHECK(match("*_proj", "up_proj").empty());
  CHECK(match("h.{i}.**", "h.12.attn.q") == "i=12");
  CHECK(match("h.{i}.**", "h.x.attn") == "no");
  CHECK(match("h.{i}", "h.") == "no");
  CHECK(match("layer{i}.*", "layer3.w") == "i=3");
  CHECK(match("{a}x{b}", "1x22") == "a=1 b=22");
  CHECK(match("**.{i}.**", "model.layers.7.experts.3.w") == "i=7");
  CHECK(match("**.{i}.**.{j}.**", "model.layers.7.experts.3.w") == "i=7 j=3");
  CHECK(match("{i}.{i}", "3.3") == "i=3");
  CHECK(match("{i}.{i}", "3.4") == "no");
  CHECK(match("**.{i}.{i}", "1.2.2") == "i=2");
  CHECK(match("{i}", "99999999999999999999") == "no");
  CHECK(glob_captures("a.{i}.b{j}") == std::vector<std::string>{"i", "j"});
  CHECK(glob_captures("a.{i").empty());
}

TEST_CASE("a glob of many wild parts ends soon", "[strings]") {
  std::string glob, path;
  for (int i = 0; i < 30; i++) glob += "**.a.";
  for (int i = 0; i < 200; i++) path += "a.";
  auto begin = std::chrono::steady_clock::now();
  CHECK(match(glob + "z", path + "b") == "no");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

TEST_CASE("sizes and counts for people", "[strings]") {
  CHECK(human_bytes(640) == "640 B");
  CHECK(human_bytes(1536) == "1.5 KiB");
  CHECK(human_bytes(1 << 20) == "1 MiB");
  CHECK(human_bytes((1 << 20) - 1) == "1 MiB");
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_count(12) == "12");
  CHECK(human_count(12000) == "12 k");
  CHECK(human_count(1300000) == "1.3 M");
  CHECK(human_count(999999) == "1 M");
  CHECK(human_count(-1500) == "-1.5 k");
}

TEST_CASE("join and split", "[strings]") {
  CHECK(join({"a", "b"}, ", ") == "a, b");
  CHECK(join({}, ", ").empty());
  CHECK(split("a.b..c", '.') == std::vector<std::string>{"a", "b", "", "c"});
  CHECK(split("", '.') == std::vector<std::string>{""});
}
