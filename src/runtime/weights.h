// Initial values of what a rank holds: parameters from the model file or by rule, and the model's constants.
#pragma once

#include <optional>
#include <string>

#include "plan/plan.h"
#include "runtime/executor.h"
#include "support/error.h"

namespace piper::runtime {

// The file with the initial weights: `given`, or the one that the plan was compiled from when that is empty.
std::string model_path(const plan::Plan& plan, const std::string& given);

// That the model file is there and is the one the plan was compiled for; nothing to check when all initial values come
// from rules.
support::Expected<void> check_model(const plan::Plan& plan, const std::string& given);

// Fills the parameters and constants that the rank's program holds. The rest of its memory is zero from the start.
support::Expected<void> load_weights(const plan::Plan& plan, const std::string& given_model, const Executor& executor);

// Which bytes of a parameter a rank holds where, of a home in a segment; nothing when the home holds all of it.
struct SegmentPart {
  int64_t in_param = 0, in_buffer = 0, bytes = 0;
};
std::optional<SegmentPart> segment_part(const plan::Plan& plan, int rank, const plan::ParamHome& home);

// The bytes of a tensor of `param`, turned between the layout that kernels read and the layout that its name stands for.
// Without Param::transposed the layouts are equal and it copies.
void to_named_layout(const plan::Param& param, const std::byte* values, std::byte* out);

}  // namespace piper::runtime
