// Sums that a plan accumulates in memory, as the proofs of gradients.cpp see them. Internal to src/verify.
#pragma once

#include <string>
#include <vector>

#include "verify/coverage.h"
#include "verify/rules.h"
#include "verify/sums.h"

namespace piper::verify {

// What an instruction does to the bytes of a sum.
struct Use {
  int instruction = -1;
  bool reads = false, writes = false;
  bool partly = false;  // it touches some of the bytes only
  int adds = 0;         // kernel outputs that accumulate into them
};

// Bytes of a buffer of a program that hold a sum, and who uses them, in issue order.
struct Place {
  int program = -1;
  int buffer = -1;
  int64_t begin = 0, end = 0;
  std::vector<Use> uses;
};

class Accounts {
 public:
  Accounts(const plan::Plan& plan, const Matches& matches, Effects& effects, Findings& findings);

  Place place(int program, int buffer, int64_t begin, int64_t end);
  const plan::Instruction& at(const Place& place, const Use& use) const {
    return plan_.programs[place.program].instructions[use.instruction];
  }
  const std::vector<int>& ranks(int program) const { return ranks_[program]; }
  // Instructions that touch a buffer.
  const std::vector<int>& touching(int program, int buffer) const { return touching_[program][buffer]; }
  const std::vector<Samples>& microbatches() const { return microbatches_; }

  // The proofs about a sum; `name` says whose it is.
  void check_whole(const std::string& name, const std::vector<Place>& places);
  void check_samples(const std::string& name, const std::vector<Place>& places, int times);
  // All observations are `total`.
  void check_seen(const std::string& name, const Ledgers& ledgers, uint64_t total);

 private:
  const plan::Plan& plan_;
  const Matches& matches_;
  Effects& effects_;
  Findings& findings_;
  std::vector<Samples> microbatches_;
  std::vector<std::vector<int>> ranks_;                  // of each program
  std::vector<std::vector<std::vector<int>>> touching_;  // [program][buffer]
};

}  // namespace piper::verify
