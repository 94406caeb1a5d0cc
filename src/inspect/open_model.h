// Importing a model to look at it: dims without a size get one.
#pragma once

#include <optional>
#include <string>

#include "frontend/onnx/import.h"

namespace piper::inspect {

// Imports the model; dims that `options` does not bind get the first of a few sizes, 128 and below, that the model
// accepts: learned positions end somewhere, and a longer sequence does not fit them. What was assumed is in the notes.
std::optional<ir::Model> open_model(const std::string& path, frontend::ImportOptions options,
                                    frontend::ImportNotes& notes, support::Diagnostics& diagnostics);

}  // namespace piper::inspect
