// The strategy's word on what tensors of the model file are, which goes before the exporter's.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/strategy.h"
#include "support/diagnostics.h"

namespace piper::frontend {

class TreatRules {
 public:
  TreatRules(const std::vector<ir::Treat>& rules, support::Diagnostics& diagnostics)
      : rules_(rules), used_(rules.size(), false), diagnostics_(diagnostics) {}

  // The rule for a tensor with this name in the file and that name in the framework; nullptr when
  // there is none. Two rules that disagree are an error.
  const ir::Treat* find(const std::string& name, const std::string& framework_name);
  // An error at the rule that a tensor does not fit.
  void refuse(const ir::Treat& rule, const std::string& why);
  // Errors for the rules that no tensor has asked for.
  void report_unused();

 private:
  const std::vector<ir::Treat>& rules_;
  std::vector<bool> used_;
  std::set<std::string> asked_;  // all names there are, for suggestions
  support::Diagnostics& diagnostics_;
};

}  // namespace piper::frontend
