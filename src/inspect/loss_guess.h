// What a model is most likely trained to minimise, from its outputs and inputs.
#pragma once

#include <string>

#include "ir/model.h"
#include "ir/strategy.h"

namespace piper::inspect {

struct LossGuess {
  bool found = false;
  ir::LossTerm term;
  std::string why;       // what in the model says so, a sentence
  std::string change;    // how to say something else, a sentence
  std::string problem;   // when nothing was found: why
  bool cuttable = true;  // whether the batch may be cut: false for a scalar that is no mean over samples
  bool tokens = false;   // next-token or masked-token prediction
};

LossGuess guess_loss(const ir::Model& model);

// A text as a string of the language.
std::string quoted(const std::string& text);
// The setting as it is written in `train`: `cross_entropy(logits = output "logits", …)`.
std::string loss_text(const ir::LossTerm& term);

}  // namespace piper::inspect
