// The proofs, each in a file of its own; internal to src/verify.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "verify/effects.h"
#include "verify/findings.h"
#include "verify/order.h"

namespace piper::verify {

struct Event {
  int rank = -1;
  int instruction = -1;
  friend bool operator==(const Event&, const Event&) = default;
};

// Instructions of different ranks that complete together: a send and its receive, or a collective on all members.
struct Matches {
  std::vector<std::vector<Event>> together;
  // [rank][instruction]: index into `together`, -1 where nothing was matched.
  std::vector<std::vector<int32_t>> of;
};

// E0602, E0603. `orders` has one entry a program.
Matches match(const plan::Plan& plan, const std::vector<Order>& orders, Findings& findings);

// E0604.
void find_deadlock(const plan::Plan& plan, const Matches& matches, Findings& findings);

// E0605, and E0607 where a result is overwritten unread or microbatches mix. `rank` stands for all with its sizes.
void find_races(const plan::Plan& plan, int rank, const Order& order, Effects& effects, Findings& findings);

// E0607: the plan against its contract. Needs a plan without deadlocks and races: it then may read every program as if
// it ran in issue order.
void check_contract(const plan::Plan& plan, const Matches& matches, Effects& effects, Findings& findings);
// E0607: gradients are complete, and complete once, where norms and updates read them. Part of check_contract.
void check_gradients(const plan::Plan& plan, const Matches& matches, Effects& effects, Findings& findings);

}  // namespace piper::verify
