// piper compile MODEL STRATEGY -o PLAN
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/cli.h"
#include "cli/compile_model.h"
#include "cli/pairs.h"
#include "plan/plan_io.h"
#include "support/strings.h"

namespace piper::cli {

namespace {

struct Options {
  std::string model, strategy, output;
  std::vector<std::string> defines, sets, emit;
  std::string device = "cpu";
  bool no_verify = false, quiet = false;
};

std::string mesh_text(const plan::Plan& plan) {
  std::vector<std::string> axes;
  for (const plan::MeshAxis& a : plan.mesh) axes.push_back(fmt::format("{}={}", a.name, a.size));
  return axes.empty() ? "one device" : support::join(axes, " x ");
}

void print_summary(const Compiled& compiled, const Options& options, double seconds) {
  const plan::Plan& plan = compiled.plan;
  int64_t elements = 0;
  for (const plan::Param& p : plan.params) elements += ir::num_elements(p.shape);
  fmt::print("{}: {} parameters, {} ({} rank{}), batch {} in {} microbatch{}\n", options.output, support::human_count(elements),
             mesh_text(plan), plan.world_size(), plan.world_size() == 1 ? "" : "s", plan.batch, plan.microbatches,
             plan.microbatches == 1 ? "" : "es");
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    int ranks = 0;
    for (const plan::RankEntry& r : plan.ranks) ranks += r.program == static_cast<int32_t>(i);
    fmt::print("  {}: {} rank{}, {} instructions on {} streams, memory {}\n", plan.programs[i].name, ranks, ranks == 1 ? "" : "s",
               plan.programs[i].instructions.size(), plan.programs[i].streams.size(), support::human_bytes(plan.programs[i].arena_bytes));
  }
  for (const std::string& note : compiled.notes) fmt::print("  note: {}\n", note);
  fmt::print("  {} in {:.2f} s\n", options.no_verify ? "compiled, not verified," : "compiled and verified", seconds);
}

void run(const Options& options, Context& context) {
  CompileOptions compile_options;
  compile_options.defines = pairs(options.defines, "-D");
  compile_options.sets = pairs(options.sets, "--set", "train.");
  compile_options.device = options.device;
  compile_options.verify = !options.no_verify;
  compile_options.emit = options.emit;
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  const auto begin = std::chrono::steady_clock::now();
  const auto compiled = compile(options.model, options.strategy, compile_options, diagnostics);
  if (!report(diagnostics, context) || !compiled) return;
  fmt::print("{}", compiled->emitted);
  if (options.output.empty()) return;
  if (const auto written = plan::write_plan(compiled->plan, options.output); !written) return report(written.error(), context);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!options.quiet) print_summary(*compiled, options, seconds);
}

}  // namespace

void register_compile(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("compile", "compile a model and a strategy into a plan");
  sub->add_option("model", options->model, "ONNX file")->required();
  sub->add_option("strategy", options->strategy, ".piper file")->required();
  sub->add_option("-o,--output", options->output, "folder of the plan; without it everything is only checked");
  sub->add_option("-D", options->defines, "parameter of the strategy, name=value")->allow_extra_args(false);
  sub->add_option("--set", options->sets, "override of the train block, train.name=value")->allow_extra_args(false);
  sub->add_option("--emit", options->emit, "print `model` or `dag:after=PASS`")
      ->allow_extra_args(false)
      ->check([](const std::string& what) {
        const std::vector<std::string> names = emittable();
        if (std::find(names.begin(), names.end(), what) != names.end()) return std::string();
        return fmt::format("nothing called `{}` can be printed; there is {}", what, support::join(names, ", "));
      });
  sub->add_option("--device", options->device, "kind of device")->check(CLI::IsMember({"cpu"}));
  sub->add_flag("--no-verify", options->no_verify, "skip the proof of the plan");
  sub->add_flag("-q,--quiet", options->quiet, "no summary");
  sub->footer("Example:\n  piper compile models/gpt/gpt.onnx strategies/1f1b.piper -D pp=2 -D dp=2 -o gpt.plan");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
