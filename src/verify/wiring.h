// Work that is repeated for every microbatch reads the same things for each: what a chunk, a send or an update reads is
// named by who wrote it, and the names are compared over microbatches. Internal to src/verify.
//
// The plan does not say what a chunk should read; this shows that it is the same for all, so one wrong binding among
// several is found, and the same wrong binding everywhere is not.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "plan/plan.h"

namespace piper::verify {

struct Miswired {
  int instruction = -1;
  int example = -1;  // the same work of another microbatch
  std::string what;
};

class Wiring {
 public:
  Wiring(const plan::Plan& plan, const plan::Program& program) : plan_(plan), program_(program) {}

  // Range `range` of `instruction` reads what `writer` (-1: none in this step) wrote as its `writer_range`.
  void read(int instruction, int range, int writer, int writer_range);
  // All reads of the instruction have been told; instructions come in issue order.
  void finish(int instruction);
  std::vector<Miswired> differences() const;

 private:
  using Work = std::tuple<plan::Opcode, int32_t, int32_t, int32_t, std::string>;
  // What the ranges are bound to, as text that compares and reads well.
  using Binding = std::map<std::pair<int, std::string>, bool>;

  std::string writer_name(int writer, int writer_range) const;

  const plan::Plan& plan_;
  const plan::Program& program_;
  Binding current_;
  std::map<std::pair<Work, int>, std::vector<std::pair<int, Binding>>> bindings_;  // by how often its microbatch did it before
  std::map<std::pair<Work, int32_t>, int> times_;                                 // by microbatch
};

}  // namespace piper::verify
