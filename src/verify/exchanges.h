// Rows that all-to-alls move as counts say. Internal to src/verify.
#pragma once

#include <vector>

#include "verify/accounts.h"

namespace piper::verify {

// Where the rows come from that an instruction works on.
struct Origin {
  int instruction = -1;  // the all-to-all that brought them; -1: they are the rank's own
  int64_t counts = 0;    // that each rank sends to one: rows of so many kinds come, in this order
};

class Exchanges {
 public:
  // E0607 where the counts of an all-to-all are not those that its members told each other, or the host has not read
  // them.
  Exchanges(const plan::Plan& plan, Effects& effects, const Accounts& accounts, Findings& findings);

  const Origin& origin(int program, int instruction) const { return origins_[program][instruction]; }

 private:
  void follow(int program, int rank);
  bool check(int program, int rank, int instruction, const std::vector<int>& writer);

  const plan::Plan& plan_;
  Effects& effects_;
  Findings& findings_;
  std::vector<std::vector<Origin>> origins_;  // [program][instruction]
};

}  // namespace piper::verify
