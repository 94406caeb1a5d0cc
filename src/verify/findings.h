// Collects findings; internal to src/verify.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "plan/show.h"
#include "verify/verify.h"

namespace piper::verify {

class Findings {
 public:
  explicit Findings(const plan::Plan& plan) : plan_(plan) {}

  // A finding about an instruction of a rank; -1 where there is none. The strategy line that asked for the instruction
  // becomes its last note. A plan that is wrong in one way is often wrong in many places: some of each code are kept,
  // and those of one rank where several run the program.
  void add(support::Code code, int rank, int instruction, std::string message, std::vector<std::string> notes = {});
  bool has(support::Code code) const { return counts_.count(code) > 0; }
  std::vector<Finding> take() { return std::move(all_); }

  std::string name(int rank, int instruction) const { return plan::instruction_text(plan_, rank, instruction); }

 private:
  static constexpr int kMaxPerCode = 10;
  const plan::Plan& plan_;
  std::vector<Finding> all_;
  std::map<support::Code, int> counts_;
  std::map<std::tuple<support::Code, int, int>, int> ranks_;  // (code, program, instruction): the rank reported
};

}  // namespace piper::verify
