#include "support/diff.h"

#include <catch2/catch.hpp>

using piper::support::unified_diff;

TEST_CASE("equal texts have no difference") { CHECK(unified_diff("a\nb\n", "a\nb\n", "x", "y").empty()); }

TEST_CASE("changes are shown with three lines around them") {
  const std::string before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n";
  std::string after = before;
  after.replace(after.find("2\n"), 2, "two\n");
  after.replace(after.find("15\n"), 3, "");
  CHECK(unified_diff(before, after, "x", "y") ==
        "--- x\n+++ y\n@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n@@ -12,5 +12,4 @@\n 12\n 13\n 14\n-15\n 16\n");
  // Two changes that are near share a hunk.
  after = before;
  after.replace(after.find("4\n"), 2, "");
  after.replace(after.find("8\n"), 2, "8\neight\n");
  CHECK(unified_diff(before, after, "x", "y") ==
        "--- x\n+++ y\n@@ -1,11 +1,11 @@\n 1\n 2\n 3\n-4\n 5\n 6\n 7\n 8\n+eight\n 9\n 10\n 11\n");
}

TEST_CASE("an end without a line end, and texts from nothing") {
  CHECK(unified_diff("a", "a\n", "x", "y") == "--- x\n+++ y\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
  CHECK(unified_diff("", "a\nb\n", "x", "y") == "--- x\n+++ y\n@@ -0,0 +1,2 @@\n+a\n+b\n");
  CHECK(unified_diff("a\n", "", "x", "y") == "--- x\n+++ y\n@@ -1,1 +0,0 @@\n-a\n");
}
