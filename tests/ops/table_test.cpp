// What ops.def promises: every op has cases, a gradient or a reason, and consistent import rules.

#include <catch2/catch.hpp>

#include <map>
#include <set>

#include "ops/kernel.h"
#include "ops/composed.h"
#include "ops/recurrent.h"
#include "tests/ops/harness.h"

namespace piper::ops::test {

TEST_CASE("every op has at least four cases, and every case an op") {
  std::map<std::string, int> cases;
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) {
    cases[c.op]++;
    INFO(c.op << ": " << c.name);
    CHECK(find_op(c.op) != nullptr);
    CHECK(names.insert(c.op + ": " + c.name).second);
  }
  for (const OpDef* def : all_ops()) {
    INFO(def->name);
    CHECK(cases[def->name] >= 4);
  }
}

TEST_CASE("an op has either a gradient or a reason for having none") {
  for (const OpDef* def : all_ops()) {
    INFO(def->name);
    CHECK((def->gradient != nullptr) != (def->why_no_gradient != nullptr && *def->why_no_gradient != 0));
    CHECK(def->infer != nullptr);
    CHECK(def->flops != nullptr);
    CHECK(has_cpu_kernel(def->name));
    CHECK(find_op(def->name) == def);
  }
  CHECK(find_op("Nothing") == nullptr);
  CHECK_FALSE(has_cpu_kernel("Nothing"));
}

TEST_CASE("an import is found by type, domain and opset") {
  CHECK(find_import("Reshape", "", 13) != nullptr);
  CHECK(find_import("Reshape", "ai.onnx", 23) != nullptr);
  bool known = false;
  CHECK(find_import("Reshape", "", 1, &known) == nullptr);
  CHECK(known);
  CHECK(find_import("Reshape", "elsewhere", 13, &known) == nullptr);
  CHECK_FALSE(known);
  CHECK(find_import("Frobnicate", "", 13, &known) == nullptr);
  CHECK_FALSE(known);
}

TEST_CASE("no two rules import one ONNX op at one opset") {
  std::map<std::pair<std::string, std::string>, std::vector<const ImportRule*>> rules;
  std::vector<const ImportRule*> all;
  for (const OpDef* def : all_ops()) {
    for (const ImportRule& rule : def->imports) all.push_back(&rule);
  }
  for (const ImportRule& rule : composed_rules()) all.push_back(&rule);
  for (const ImportRule& rule : recurrent_rules()) all.push_back(&rule);
  for (const ImportRule* rule : all) {
    INFO(rule->op_type);
    CHECK(rule->import != nullptr);
    CHECK(rule->min_opset <= rule->max_opset);
    auto& others = rules[{rule->op_type, rule->domain}];
    for (const ImportRule* other : others) {
      CHECK((rule->max_opset < other->min_opset || other->max_opset < rule->min_opset));
    }
    others.push_back(rule);
  }
  const std::vector<std::string> names = importable_ops();
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(names.size() == rules.size());
}

}  // namespace piper::ops::test
