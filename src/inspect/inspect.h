// What a model is made of, for people and for scripts: the tree of modules, the parameters, inputs and outputs, totals;
// and what a strategy does with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "inspect/loss_guess.h"
#include "inspect/strategy_facts.h"
#include "inspect/table.h"
#include "ir/model.h"
#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::inspect {

// A model with what is known about it.
struct Inspection {
  std::string file;
  const ir::Model* model = nullptr;  // or the sketch of a file with unsupported operators
  const frontend::ImportNotes* notes = nullptr;
  bool typed = true;           // false: a sketch
  std::vector<int64_t> saved;  // saved_bytes(); empty: not known
  std::string saved_for;       // the loss that it holds for
};
Inspection inspect_model(const std::string& file, const ir::Model& model, const frontend::ImportNotes& notes,
                         const std::vector<ir::LossTerm>& loss);
Inspection inspect_sketch(const std::string& file, const frontend::ImportNotes& notes);

struct InspectOptions {
  Style style;
  int64_t batch = 0;        // samples that costs are given for; 0: of one
  int depth = -1;           // levels of modules shown; -1: all
  std::string path;         // glob: only modules it matches, and what is in them
  bool parameters = false;  // list the tensors of the file
  bool operations = false;  // list the operations
};

// Tables; the same model gives the same text.
std::string inspect_text(const Inspection& inspection, const InspectOptions& options);
// The same facts as one JSON object, two spaces of indent, with those of a strategy if there is one; docs/inspect.md has its
// keys.
std::string inspect_json(const Inspection& inspection, const StrategyFacts* strategy = nullptr);

// What a strategy makes of the model, as tables: tags by module, adopted operations, chunks with their cost, placements.
std::string strategy_text(const ir::Model& model, const StrategyFacts& facts, const Style& style);

// Parameters that several modules read, with the modules.
struct Tie {
  std::string parameter;
  std::vector<std::string> paths;
};
std::vector<Tie> ties_of(const ir::Model& model);

}  // namespace piper::inspect
