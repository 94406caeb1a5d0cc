// Shared by check.cpp (tables) and check_instructions.cpp; internal to src/plan.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/check.h"

namespace piper::plan::rules {

// No size or offset in a plan is larger (64 TiB): sums and products of a few of them stay far from overflow.
inline constexpr int64_t kMaxBytes = int64_t{1} << 46;
inline constexpr size_t kMaxProblems = 50;
// Bounds the memory of the verifier's vector clocks.
inline constexpr size_t kMaxStreams = 1024;

template <class T>
bool valid_index(int64_t index, const std::vector<T>& table) {
  return index >= 0 && static_cast<size_t>(index) < table.size();
}

// Collects problems; `at` says where the following ones are.
class Reporter {
 public:
  explicit Reporter(std::vector<Problem>* out) : out_(out) {}
  void at(int program, int rank, int instruction) { place_ = {"", program, rank, instruction}; }
  bool full() const { return out_->size() >= kMaxProblems; }
  // Adds the problem `message` unless `good`; returns `good`.
  bool require(bool good, const std::string& message) {
    if (good || full()) return good;
    Problem problem = place_;
    problem.message = message;
    out_->push_back(std::move(problem));
    return false;
  }

 private:
  std::vector<Problem>* out_;
  Problem place_;
};

// Instructions of one program, independent of ranks: indices, operands of each opcode.
void check_instructions(const Plan& plan, int program, Reporter& report);

// What the sizes of a program's ranges depend on, over all ranks that run it. Ranges are checked against these instead
// of rank by rank, so that a plan of many ranks costs no more than its size.
struct ProgramSizes {
  std::vector<std::vector<std::set<int64_t>>> counts;  // [share][microbatch]: every number of samples
  std::vector<int64_t> piece_ends;                     // [piece]: the largest end
};
// Sizes and places of a program's ranges; the plan has passed all other rules.
void check_sizes(const Plan& plan, int program, const ProgramSizes& sizes, Reporter& report);
// Kernel lists of a chunk.
void check_chunk(const Plan& plan, size_t chunk, Reporter& report);

}  // namespace piper::plan::rules
