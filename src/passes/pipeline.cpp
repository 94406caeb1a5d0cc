#include "passes/pipeline.h"

#include "passes/check_dag.h"

namespace piper::passes {

namespace {

using PassFn = void (*)(TrainingDag&, const Strategy&, Diagnostics&);
struct PassRow {
  const char* name;
  PassFn run;
};

constexpr PassRow kPasses[] = {
#define PIPER_PASS(name, after) {#name, &name},
#include "passes/passes.def"
#undef PIPER_PASS
};

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const PassRow& pass : kPasses) names.push_back(pass.name);
  return names;
}

std::optional<TrainingDag> run_passes(ir::Model model, const Strategy& strategy, Diagnostics& diagnostics,
                                      const std::function<void(const std::string&, const TrainingDag&)>& after,
                                      const std::string& last) {
  check_supported(model, strategy, diagnostics);
  if (diagnostics.has_errors()) return std::nullopt;
  TrainingDag dag(std::move(model));
  dag.mesh = strategy.mesh;
  for (const PassRow& pass : kPasses) {
    pass.run(dag, strategy, diagnostics);
    if (diagnostics.has_errors()) return std::nullopt;
    check_dag(dag, pass.name);
    if (after) after(pass.name, dag);
    if (pass.name == last) break;
  }
  return dag;
}

}  // namespace piper::passes
