// Targets of Reshape and Expand in terms of the batch size: what the exporter wrote as 0, -1 or as
// the number of samples it happened to trace with.
#pragma once

#include <optional>

#include "ir/types.h"
#include "support/error.h"

namespace piper::frontend {

// The whole shape that Reshape gives `data`. `literal_batch`: the batch size written into the
// model's inputs, if any. The error says why no batch size can be read out of the target.
support::Expected<ir::Shape> reshape_target(const ir::Shape& data,
                                            const std::vector<ir::Dim>& target, bool allow_zero,
                                            std::optional<int64_t> literal_batch);

// The target of Expand, with a number in the place of data's batch dim replaced by that dim.
ir::Shape expand_target(const ir::Shape& data, const std::vector<ir::Dim>& target);

}  // namespace piper::frontend
