// Every single fault is found by the verifier, or shown by execution to change nothing: a fault that it lets pass has to
// give the reference's bits under many timings of an interpreter that shares no code with it.
// Plans with one microbatch are left out: what a chunk reads is shown by comparing microbatches (src/verify/wiring.h).
#include <catch2/catch.hpp>
#include <iomanip>
#include <map>
#include <sstream>

#include "tests/verify/interpreter.h"
#include "tests/verify/mutations.h"
#include "tests/verify/plan_builder.h"
#include "verify/verify.h"

namespace {

using namespace piper;

constexpr uint64_t kTimings = 18;
constexpr int kPerKindAndPlan = 30;

// The result that all timings agree on; nothing when one fails or they differ.
std::vector<uint64_t> agreed(const plan::Plan& plan) {
  testing::Outcome first = testing::interpret(plan, 1);
  if (!first.failure.empty()) return {};
  for (uint64_t seed = 2; seed <= kTimings; seed++) {
    if (!(testing::interpret(plan, seed) == first)) return {};
  }
  return first.results;
}

struct Tally {
  int made = 0, found = 0, harmless = 0, missed = 0;
};

// "recv" of "rank 0, instruction 3 on `load`: recv `x` of ...".
std::string action_of(const std::string& what) {
  size_t begin = what.find("`: ");
  return begin == std::string::npos ? what : what.substr(begin + 3, what.find(' ', begin + 3) - begin - 3);
}

std::string table(const std::vector<std::pair<std::string, Tally>>& rows) {
  std::ostringstream out;
  out << std::left << std::setw(16) << "fault" << std::right << std::setw(8) << "made" << std::setw(8) << "found" << std::setw(12)
      << "equivalent" << std::setw(8) << "missed" << "\n";
  for (const auto& [kind, t] : rows) {
    out << std::left << std::setw(16) << kind << std::right << std::setw(8) << t.made << std::setw(8) << t.found << std::setw(12)
        << t.harmless << std::setw(8) << t.missed << "\n";
  }
  return out.str();
}

}  // namespace

TEST_CASE("valid plans give one result under every timing") {
  for (const auto& [name, options] : testing::plan_family()) {
    INFO(name);
    CHECK(!agreed(testing::build_plan(options)).empty());
  }
}

TEST_CASE("every fault is found or equivalent") {
  std::mt19937_64 rng(20240817);
  std::vector<std::pair<std::string, Tally>> rows;
  std::map<std::string, int> equivalent;
  for (const testing::Mutation& mutation : testing::mutations()) {
    Tally tally;
    for (const auto& [name, options] : testing::plan_family()) {
      if (options.microbatches == 1) continue;
      plan::Plan plan = testing::build_plan(options);
      std::vector<uint64_t> reference = agreed(plan);
      for (int k = 0; k < kPerKindAndPlan; k++) {
        plan::Plan mutant = plan;
        std::string what = mutation.apply(mutant, rng);
        if (what.empty() || mutant == plan) continue;
        tally.made++;
        if (!verify::verify(mutant).empty()) {
          tally.found++;
          continue;
        }
        bool same = agreed(mutant) == reference;
        (same ? tally.harmless : tally.missed)++;
        INFO(name << ": " << mutation.kind << ": " << what);
        CHECK(same);
        if (same) equivalent[mutation.kind + ": " + action_of(what)]++;
      }
    }
    rows.emplace_back(mutation.kind, tally);
    INFO(mutation.kind);
    CHECK(tally.made > 0);
    CHECK(tally.found > 0);
  }
  std::string list;
  for (const auto& [what, count] : equivalent) list += "  " + std::to_string(count) + " x " + what + "\n";
  WARN(table(rows) << "equivalent, by execution under " << kTimings << " timings:\n" << list);
}
