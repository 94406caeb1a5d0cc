// piper inspect MODEL
#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/compile_model.h"
#include "cli/pairs.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/inspect.h"
#include "frontend/piper/strategy_loader.h"

namespace piper::cli {

namespace {

struct Options {
  std::string model, strategy;
  std::vector<std::string> dims;
  bool json = false, ops = false;
};

// What a strategy says of the model before the model is read: sizes of dims, and what tensors are.
bool read_strategy(const Options& options, support::Diagnostics& diagnostics, frontend::ImportOptions& import) {
  frontend::LoadOptions load;
  load.defines = pairs(options.dims, "-D");
  load.library_dirs = library_dirs();
  frontend::StrategyLoader loader(diagnostics, load);
  ir::Strategy strategy;
  if (!loader.parse(options.strategy) || !loader.evaluate_header(strategy)) return false;
  import.dims = strategy.dims;
  import.treats = strategy.treats;
  return true;
}

void run(const Options& options, Context& context) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  frontend::ImportOptions import;
  if (options.strategy.empty()) {
    import.dims = dim_sizes(options.dims);
  } else if (!read_strategy(options, diagnostics, import)) {
    report(diagnostics, context);
    return;
  }
  const auto model = frontend::import_onnx(options.model, import, diagnostics);
  if (!report(diagnostics, context) || !model) return;
  if (options.ops) {
    fmt::print("{}", to_string(*model));
  } else {
    fmt::print("{}", options.json ? frontend::inspect_json(*model) : frontend::inspect_text(*model));
  }
}

}  // namespace

void register_inspect(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("inspect", "show a model's paths, parameters, shapes and cost");
  sub->add_option("model", options->model, "ONNX file")->required();
  sub->add_option("--strategy", options->strategy, ".piper file whose `dim` and `treat` statements hold");
  sub->add_option("-D", options->dims, "size of a symbolic dim, name=size; with --strategy, a parameter's value")->allow_extra_args(false);
  sub->add_flag("--json", options->json, "for programs");
  sub->add_flag("--ops", options->ops, "every operation, one a line");
  sub->footer("Example:\n  piper inspect models/gpt/gpt.onnx");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
