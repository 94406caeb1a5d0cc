// What a model is made of, for people and for scripts: the tree of modules, the parameters, inputs
// and outputs, totals.
#pragma once

#include <string>

#include "ir/model.h"

namespace piper::frontend {

// Tables; the same model gives the same text.
std::string inspect_text(const ir::Model& model);
// The same facts as one JSON object, two spaces of indent.
std::string inspect_json(const ir::Model& model);

}  // namespace piper::frontend
