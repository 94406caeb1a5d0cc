// The whole compiler as one call: model and strategy in, plan out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/dag.h"
#include "ir/model.h"
#include "ir/strategy.h"
#include "plan/plan.h"
#include "support/diagnostics.h"

namespace piper::cli {

struct CompileOptions {
  std::map<std::string, std::string> defines;  // -D k=v
  std::map<std::string, std::string> sets;     // --set train.k=v
  std::string device = "cpu";
  bool verify = true;
  std::vector<std::string> emit;  // what to print, of emittable()
};

// "model" and "dag:after=PASS" for every pass.
std::vector<std::string> emittable();

struct Compiled {
  plan::Plan plan;
  std::string emitted;         // the texts asked for with `emit`
  std::vector<std::string> notes;  // for the summary
};

// Folders that are searched for `use`d files: `strategies/lib` beside the binary's installation and in its build tree.
std::vector<std::string> library_dirs();

// Parses and evaluates the strategy against the model. The model is filled in.
bool load_strategy(const std::string& model_path, const std::string& strategy_path, const CompileOptions& options,
                   support::Diagnostics& diagnostics, ir::Model& model, ir::Strategy& strategy);

// Everything wrong is in the diagnostics; nothing is returned then.
std::optional<Compiled> compile(const std::string& model_path, const std::string& strategy_path, const CompileOptions& options,
                                support::Diagnostics& diagnostics);

}  // namespace piper::cli
