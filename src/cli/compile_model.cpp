#include "cli/compile_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "codegen/lower.h"
#include "frontend/onnx/import.h"
#include "frontend/piper/strategy_loader.h"
#include "ops/op.h"
#include "passes/costs.h"
#include "passes/pipeline.h"
#include "support/strings.h"
#include "verify/verify.h"

namespace piper::cli {

namespace fs = std::filesystem;
using support::Diagnostics;

namespace {
constexpr std::string_view kDagAfter = "dag:after=";
}

std::vector<std::string> emittable() {
  std::vector<std::string> names{"model"};
  for (const std::string& pass : passes::pass_names()) names.push_back(std::string(kDagAfter) + pass);
  return names;
}

std::vector<std::string> library_dirs() {
  std::vector<std::string> dirs;
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  if (!self.empty()) {
    dirs.push_back((self.parent_path().parent_path() / "share/piper/strategies/lib").string());
    // A binary in a build tree (build/<preset>/bin) finds the library of its checkout.
    for (fs::path up = self.parent_path(); up.has_relative_path(); up = up.parent_path()) {
      if (fs::exists(up / "strategies/lib", ignored)) dirs.push_back((up / "strategies/lib").string());
    }
  }
  return dirs;
}

bool load_strategy(const std::string& model_path, const std::string& strategy_path, const CompileOptions& options,
                   Diagnostics& diagnostics, ir::Model& model, ir::Strategy& strategy) {
  frontend::LoadOptions load;
  load.defines = options.defines;
  load.sets = options.sets;
  load.library_dirs = library_dirs();
  frontend::StrategyLoader loader(diagnostics, load);
  if (!loader.parse(strategy_path) || !loader.evaluate_header(strategy)) return false;
  frontend::ImportOptions import;
  import.dims = strategy.dims;
  import.treats = strategy.treats;
  auto imported = frontend::import_onnx(model_path, import, diagnostics);
  if (!imported) return false;
  model = std::move(*imported);
  const auto flops = [&](ir::OpId op) { return ops::flops_of(model, model.op(op), 1); };
  return loader.evaluate_body(&model, flops, strategy) && !diagnostics.has_errors();
}

namespace {


void report_findings(const std::vector<verify::Finding>& findings, Diagnostics& diagnostics) {
  for (const verify::Finding& f : findings) {
    auto& d = diagnostics.report(f.code, f.message);
    for (const std::string& note : f.notes) d.note(note);
  }
}

// "`a`, `b`, … and 12 more"
std::string few(const std::vector<std::string>& names) {
  constexpr size_t kMost = 6;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kMost, names.size()); ++i) shown.push_back("`" + names[i] + "`");
  return support::join(shown, ", ") + (names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

// Of each chunk that is recomputed in segments what it keeps; the others keep nothing, and are one note.
void add_recompute_notes(const ir::TrainingDag& dag, std::vector<std::string>& notes) {
  std::vector<std::string> whole;
  for (const ir::Chunk& chunk : dag.chunks) {
    if (chunk.recomputed_segments == 0) continue;
    if (chunk.kept.empty()) {
      whole.push_back(chunk.name);
      continue;
    }
    std::vector<std::string> kept;
    for (ir::ValueId v : chunk.kept) kept.push_back(dag.model.value(v).name);
    notes.push_back(fmt::format("recomputing `{}` in {} segment{}, kept: {}", chunk.name, chunk.recomputed_segments,
                                chunk.recomputed_segments == 1 ? "" : "s", few(kept)));
  }
  if (!whole.empty()) notes.push_back(fmt::format("recomputing {}, from {} inputs", few(whole), whole.size() == 1 ? "its" : "their"));
}

// How experts are divided, once for all layers that are alike.
void add_expert_notes(const ir::TrainingDag& dag, std::vector<std::string>& notes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> alike;
  for (const ir::ExpertRegion& region : dag.regions) {
    const ir::Op& route = dag.model.op(region.route);
    const auto counts = std::find_if(dag.exchanges.begin(), dag.exchanges.end(), [&](const ir::Exchange& e) { return e.from == route.outputs[1]; });
    if (counts == dag.exchanges.end()) continue;
    const std::string how = fmt::format("at most {} of {} on each device of `{}`, which has room for {} rows", dag.model.value(counts->from).type.shape[1].constant,
                                        route.attrs.i("experts"), dag.mesh.axes[static_cast<size_t>(counts->axis)].name, counts->limit);
    auto it = std::find_if(alike.begin(), alike.end(), [&](const auto& a) { return a.first == how; });
    if (it == alike.end()) it = alike.insert(alike.end(), {how, {}});
    it->second.push_back(region.path);
  }
  for (const auto& [how, paths] : alike) {
    const std::string more = paths.size() == 1 ? "" : fmt::format(" and {} more", paths.size() - 1);
    notes.push_back(fmt::format("experts of `{}`{}: {}", paths.front(), more, how));
  }
}

std::vector<std::string> summary_notes(const ir::TrainingDag& dag, const ir::Strategy& strategy) {
  std::vector<std::string> notes;
  if (strategy.orders.empty() && dag.microbatches > 1) {
    notes.push_back("no `order` in the strategy: the compiler chose one, depth-first backward");
  }
  for (int32_t r = 0; r < dag.mesh.world_size(); ++r) {
    if (std::any_of(dag.placements.begin(), dag.placements.end(), [&](const ir::Placement& p) { return ir::contains(dag.mesh, p, r); })) continue;
    notes.push_back(fmt::format("nothing is placed on rank {}, the first of the ranks that only wait", r));
    break;
  }
  if (const passes::Bubble bubble = passes::predicted_bubble(dag, strategy.train.batch); bubble.global >= 0.005) {
    // Norm and finiteness are known to all before any update: until then no rank starts the next step.
    notes.push_back(fmt::format("bubble {:.0f} % of the step, which ends with a barrier; {:.0f} % inside the ranks' work "
                                "(from FLOPs, communication free)",
                                100 * bubble.global, 100 * bubble.inner));
  }
  add_recompute_notes(dag, notes);
  add_expert_notes(dag, notes);
  for (size_t p = 0; p < dag.model.params.size(); ++p) {
    if (dag.param_holders[p].empty()) notes.push_back(fmt::format("parameter `{}` has no effect on the loss", dag.model.params[p].name));
  }
  return notes;
}

}  // namespace

std::optional<Compiled> compile(const std::string& model_path, const std::string& strategy_path, const CompileOptions& options,
                                Diagnostics& diagnostics) {
  ir::Model model;
  ir::Strategy strategy;
  if (!load_strategy(model_path, strategy_path, options, diagnostics, model, strategy)) return std::nullopt;
  Compiled out;
  std::set<std::string> dags;
  for (const std::string& what : options.emit) {
    if (what == "model") out.emitted += to_string(model);
    if (what.rfind(kDagAfter, 0) == 0) dags.insert(what.substr(kDagAfter.size()));
  }
  auto dag = passes::run_passes(std::move(model), strategy, diagnostics, [&](const std::string& pass, const ir::TrainingDag& at) {
    if (dags.count(pass)) out.emitted += fmt::format("// after {}\n{}", pass, to_string(at));
  });
  if (!dag) return std::nullopt;
  out.plan = codegen::lower(*dag, strategy, options.device, diagnostics);
  if (diagnostics.has_errors()) return std::nullopt;
  out.notes = summary_notes(*dag, strategy);
  if (options.verify) report_findings(verify::verify(out.plan), diagnostics);
  if (diagnostics.has_errors()) return std::nullopt;
  return out;
}

}  // namespace piper::cli
