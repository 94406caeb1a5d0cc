// Which bytes an instruction really reads and writes. For a chunk that is what its kernels do, not what its slots span:
// a bucket of parameters is one slot, and scratch that kernels write before they read is no input.
// Internal to src/verify.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace piper::verify {

// Bytes [begin, end) of a range, counted from its start. kReadWrite does not occur: what is read and written has two.
struct Effect {
  int range = 0;
  int64_t begin = 0, end = 0;
  plan::Access access = plan::Access::kRead;
};

class Effects {
 public:
  explicit Effects(const plan::Plan& plan) : plan_(plan) {}

  // Of an instruction as `rank` runs it; reads first. The reference is valid until the next call.
  const std::vector<Effect>& of(int rank, const plan::Instruction& instruction);
  // Of a chunk's kernels for any number of samples, which is enough where ranges do not depend on them:
  // Every output of its kernels for itself.
  const std::vector<Effect>& outputs_of(int32_t chunk);

 private:
  const std::vector<Effect>& of_variant(int32_t chunk, size_t variant);

  const plan::Plan& plan_;
  std::map<std::pair<int32_t, size_t>, std::vector<Effect>> chunks_;  // (chunk, variant)
  std::map<int32_t, std::vector<Effect>> outputs_;
  std::vector<Effect> other_;
};

}  // namespace piper::verify
