#include "frontend/onnx/treat.h"

#include "support/strings.h"

namespace piper::frontend {

using support::Code;

namespace {

bool matches(const std::string& glob, const std::string& name) {
  return glob == name || support::match_path_glob(glob, name).has_value();
}

const char* kind_text(ir::WeightKind kind) {
  return kind == ir::WeightKind::kParameter ? "parameter"
         : kind == ir::WeightKind::kBuffer  ? "buffer"
                                            : "constant";
}

}  // namespace

const ir::Treat* TreatRules::find(const std::string& name, const std::string& framework_name) {
  asked_.insert(name);
  asked_.insert(framework_name);
  const ir::Treat* found = nullptr;
  for (size_t i = 0; i < rules_.size(); i++) {
    const ir::Treat& rule = rules_[i];
    if (!matches(rule.glob, name) && !matches(rule.glob, framework_name)) continue;
    used_[i] = true;
    if (found != nullptr && found->kind != rule.kind) {
      diagnostics_
          .report(Code::E0208, rule.span,
                  "`" + framework_name + "` is treated as " + kind_text(rule.kind) + " and as " +
                      kind_text(found->kind))
          .label(found->span, "first here");
    }
    if (found == nullptr) found = &rule;
  }
  return found;
}

void TreatRules::refuse(const ir::Treat& rule, const std::string& why) {
  diagnostics_.report(Code::E0304, rule.span,
                      why + ", so it cannot be treated as " + kind_text(rule.kind));
}

void TreatRules::report_unused() {
  constexpr size_t kShown = 8;
  const std::vector<std::string> known(asked_.begin(), asked_.end());
  for (size_t i = 0; i < rules_.size(); i++) {
    if (used_[i]) continue;
    auto& error = diagnostics_.report(
        Code::E0512, rules_[i].span,
        "the model has no initializer or input `" + rules_[i].glob + "`");
    const std::string meant = support::did_you_mean(rules_[i].glob, known);
    if (!meant.empty()) {
      error.help("did you mean `" + meant + "`?");
    } else if (!known.empty()) {
      const auto end = known.begin() + static_cast<long>(std::min(known.size(), kShown));
      error.note("it has " + support::join({known.begin(), end}, ", ") +
                 (known.size() > kShown ? ", ..." : ""));
    }
  }
}

}  // namespace piper::frontend
