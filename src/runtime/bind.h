// A rank's program bound to memory and kernels: what the executor walks. Everything that needs a look-up, a string or
// an allocation is done here, once; a bound instruction has only pointers and numbers.
#pragma once

#include <memory>
#include <vector>

#include "ops/kernel.h"
#include "plan/plan.h"
#include "runtime/arena.h"
#include "support/error.h"

namespace piper::runtime {

struct BoundWait {
  int32_t stream = 0;
  uint32_t target = 0;  // instructions of that stream that must have completed
};

// A kernel with its operands: `in` and `out` are positions in BoundProgram::pointers.
struct BoundCall {
  ops::Kernel* kernel = nullptr;
  uint32_t in = 0;
  uint32_t out = 0;
};

struct BoundRange {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

struct BoundInstruction {
  plan::Opcode opcode = plan::Opcode::kCompute;
  ir::DType dtype = ir::DType::kF32;
  int32_t index = 0;  // in the program
  uint32_t first_wait = 0, end_wait = 0;
  uint32_t first_call = 0, end_call = 0;
  uint32_t first_range = 0, end_range = 0;
  int32_t peer = -1;   // a rank
  int32_t group = -1;  // index into Plan::groups
  int32_t input = -1;
  int32_t update = -1;
  // Of messages the plan's; of a collective its position among those of its group, which is the same on all members,
  // because every program is a projection of one order.
  uint32_t tag = 0;
  int64_t sample_start = 0, sample_count = 0;  // of the step's global batch
  int64_t segment_start = 0;  // of an update: first element of the bucket in its ranges
  uint32_t members = 0;       // of the group of an all-to-all
  size_t row_bytes = 0;       // of an all-to-all of counted rows
  int64_t limit = 0;          // of a wait for counts
  double scale = 1;
};

struct BoundStream {
  int threads = 1;  // for OpenMP
  std::vector<BoundInstruction> instructions;
  Arena scratch;  // of its kernels, one at a time
};

struct BoundProgram {
  Arena arena;
  std::vector<BoundStream> streams;
  std::vector<BoundWait> waits;
  std::vector<BoundCall> calls;
  std::vector<BoundRange> ranges;
  std::vector<void*> pointers;
  std::vector<std::unique_ptr<ops::Kernel>> kernels;
  int64_t bytes_sent = 0;  // in a step, collectives by the bytes that a ring moves

  std::byte* buffer(const plan::Program& program, int32_t index) const {
    return arena.data() + program.buffers[static_cast<size_t>(index)].offset;
  }
};

// Binds the program of `rank`; compute streams get `threads` OpenMP threads. Errors name the kernel that this build
// lacks, or memory that is not there.
support::Expected<BoundProgram> bind_program(const plan::Plan& plan, int rank, int threads);

}  // namespace piper::runtime
