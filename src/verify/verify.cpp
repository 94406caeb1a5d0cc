#include "verify/verify.h"

#include "plan/check.h"
#include "support/render.h"
#include "verify/rules.h"

namespace piper::verify {

namespace {

// Clocks of larger programs would not fit a machine; no real program comes near.
constexpr size_t kMaxClocks = size_t{1} << 28;

}  // namespace

void Findings::add(support::Code code, int rank, int instruction, std::string message, std::vector<std::string> notes) {
  Finding finding{code, std::move(message), std::move(notes), -1, rank, instruction};
  if (rank >= 0) finding.program = plan_.ranks[rank].program;
  if (rank >= 0 && instruction >= 0) {
    auto [it, fresh] = ranks_.emplace(std::tuple(code, finding.program, instruction), rank);
    if (!fresh && it->second != rank) return;
  }
  if (++counts_[code] > kMaxPerCode) return;
  if (rank >= 0 && instruction >= 0) {
    int source = plan_.programs[finding.program].instructions[instruction].source;
    if (source >= 0) finding.notes.push_back("asked for by " + plan_.sources[source]);
  }
  all_.push_back(std::move(finding));
}

std::vector<Finding> verify(const plan::Plan& plan) {
  std::vector<Finding> malformed;
  for (const plan::Problem& problem : plan::check(plan)) {
    malformed.push_back({support::Code::E0606, problem.where(plan) + problem.message, {}, problem.program, problem.rank,
                         problem.instruction});
  }
  for (const plan::Program& program : plan.programs) {
    if (program.instructions.size() * program.streams.size() <= kMaxClocks) continue;
    malformed.push_back({support::Code::E0606, "program `" + program.name + "` is too large to verify", {}, -1, -1, -1});
  }
  if (!malformed.empty()) return malformed;

  Findings findings(plan);
  std::vector<Order> orders(plan.programs.begin(), plan.programs.end());
  Matches matches = match(plan, orders, findings);
  find_deadlock(plan, matches, findings);
  Effects effects(plan);
  for (int rank : plan::size_representatives(plan)) {
    find_races(plan, rank, orders[plan.ranks[rank].program], effects, findings);
  }
  using support::Code;
  bool sound = true;
  for (Code code : {Code::E0602, Code::E0603, Code::E0604, Code::E0605}) sound = sound && !findings.has(code);
  if (sound) check_contract(plan, matches, effects, findings);
  return findings.take();
}

std::string to_string(const Finding& finding) {
  std::string text = "error[" + std::string(support::code_name(finding.code)) + "]: " + finding.message + "\n";
  for (const std::string& note : finding.notes) text += "  = " + note + "\n";
  return support::printable(text);
}

}  // namespace piper::verify
