// A strategy file from disk to an evaluated Strategy. Two phases, because the model can only be imported when the dims are
// known, and tags and directives need the model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/model.h"
#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::frontend {

struct LoadOptions {
  std::map<std::string, std::string> defines;  // -D name=value: overrides params and dims
  std::map<std::string, std::string> sets;     // --set train.name=value
  std::vector<std::string> library_dirs;       // where `use name` looks after the strategy's own folder
};

class StrategyLoader {
 public:
  StrategyLoader(support::Diagnostics& diagnostics, LoadOptions options);
  ~StrategyLoader();

  // Reads and parses the file and everything it uses. False on errors, which are all in the diagnostics.
  bool parse(const std::string& path);
  // Params, mesh, dims and the train block.
  bool evaluate_header(ir::Strategy& strategy);
  // Whether the file trains: one without a `train` block only says how a model is read.
  bool has_train() const;
  // Tags, then directives. Without a model, what depends on one is left out.
  bool evaluate_body(const ir::Model* model, const std::function<double(ir::OpId)>& flops, ir::Strategy& strategy);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace piper::frontend
