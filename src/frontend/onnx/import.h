// ONNX to ir::Model: reads the file, gives every shape a meaning in terms of the batch size B,
// folds what is constant, and rewrites the exporters' patterns into canonical ops. Enter at
// import.cpp; the design is in the steps there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/model.h"
#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::frontend {

struct ImportOptions {
  std::map<std::string, int64_t> dims;  // bound symbolic dims, e.g. {"sequence", 256}
  std::vector<ir::Treat> treats;        // what tensors are, whatever the exporter says
  bool canonicalise = true;             // false: ops as the import rules of each op make them
  // Dim 0 of the inputs stays the number in the file instead of becoming the batch B (tests of
  // single ops).
  bool static_batch = false;
};

// Imports the model at `path`. Reports into `diagnostics`; nothing when there was an error.
std::optional<ir::Model> import_onnx(const std::string& path, const ImportOptions& options,
                                     support::Diagnostics& diagnostics);

}  // namespace piper::frontend
