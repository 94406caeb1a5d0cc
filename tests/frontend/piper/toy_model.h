// A model and a way to load a strategy text against it, for tests of the language.
#pragma once

#include <string>

#include "frontend/piper/strategy_loader.h"
#include "support/diagnostics.h"

namespace piper::test {

// Embedding, a mask that depends on no parameter, `layers` layers of an attention and an MLP op each, a head.
// Paths: transformer.wte, transformer.mask, transformer.h.N.{attn,mlp}, transformer.ln_f, lm_head.
ir::Model toy_model(int layers);

struct Loaded {
  bool parsed = false, header = false, body = false;
  ir::Strategy strategy;
  std::string errors;  // rendered, with the repository's folder taken out of paths
  bool ok() const { return parsed && header && body; }
};

// Writes `text` to a file `name` in a temporary folder and loads it as far as it goes. `model` may be null.
Loaded load(const std::string& text, const ir::Model* model, frontend::LoadOptions options = {}, const std::string& name = "test.piper");
// A file of the repository.
Loaded load_file(const std::string& path, const ir::Model* model, frontend::LoadOptions options = {});

}  // namespace piper::test
