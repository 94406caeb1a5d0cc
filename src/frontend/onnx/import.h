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

// What an import finds out about a file on its way, also about one that it refuses in the end.
struct ImportNotes {
  struct Unsupported {
    std::string op;  // with its domain, when that is not ONNX's own
    int count = 0;
    std::string first;         // the first node, for people
    std::string path;          // its module
    bool other_opset = false;  // supported, but not in the opset of the model
  };
  struct Weight {
    std::string name, stored_as;  // as the framework knows it, and as the file does
    ir::WeightKind kind = ir::WeightKind::kConstant;
    std::string type;
    std::string reason;  // why it is of that kind
  };
  int64_t ir_version = 0;
  int opset = 0;
  int64_t assumed_size = 0;
  std::map<std::string, std::vector<std::string>> assumed;  // dims without a size -> inputs
  std::vector<std::string> assumed_unnamed;                 // "dim 1 of `x`"
  std::vector<Unsupported> unsupported;
  std::vector<Weight> weights;  // initializers of the file, sorted by name
  // Nodes, paths and parameters alone, as the file has them; no types of computed values. For files
  // that cannot be imported.
  std::optional<ir::Model> sketch;
};

struct ImportOptions {
  std::map<std::string, int64_t> dims;  // bound symbolic dims, e.g. {"sequence", 256}
  std::vector<ir::Treat> treats;        // what tensors are, whatever the exporter says
  bool canonicalise = true;             // false: ops as the import rules of each op make them
  // Dim 0 of the inputs stays the number in the file instead of becoming the batch B (tests of
  // single ops).
  bool static_batch = false;
  // Above 0: the size of symbolic dims that `dims` does not bind; 0: these are an error.
  int64_t assume_dim = 0;
  ImportNotes* notes = nullptr;  // filled in when given
};

// Imports the model at `path`. Reports into `diagnostics`; nothing when there was an error.
std::optional<ir::Model> import_onnx(const std::string& path, const ImportOptions& options,
                                     support::Diagnostics& diagnostics);

}  // namespace piper::frontend
