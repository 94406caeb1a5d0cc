// Distributed sums on fingerprints: every contribution is a random number, all-reduces add, and what an instruction sees
// is compared with what it should see. Two different sums agree with probability 2^-64. Internal to src/verify.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "verify/rules.h"

namespace piper::verify {

// One thing that a rank does to its copy of a sum.
struct Entry {
  enum class Kind { kReset, kAdd, kReduce, kBroadcast, kUse };
  Kind kind = Kind::kUse;
  int instruction = -1;
  uint64_t value = 0;  // of kAdd
};

// Entries of each rank that has a copy, in the order in which they happen.
using Ledgers = std::map<int, std::vector<Entry>>;

struct Observation {
  Event event;
  uint64_t sum = 0;
};

// What every kUse sees. Ranks wait for each other in reductions; a reduction with a rank that has no copy adds noise.
// Ledgers that cannot go on (their reductions do not meet) yield no further observations.
std::vector<Observation> settle(const Matches& matches, const Ledgers& ledgers);

// The fingerprint of a contribution.
uint64_t fingerprint(int unit, int instruction);

}  // namespace piper::verify
