// piper check STRATEGY [MODEL]
#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/compile_model.h"
#include "frontend/piper/strategy_loader.h"

namespace piper::cli {

namespace {

struct Options {
  std::string strategy, model;
};

void run(const Options& options, Context& context) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  if (options.model.empty()) {
    frontend::LoadOptions load;
    load.library_dirs = library_dirs();
    frontend::StrategyLoader loader(diagnostics, load);
    ir::Strategy strategy;
    if (loader.parse(options.strategy) && loader.evaluate_header(strategy)) loader.evaluate_body(nullptr, {}, strategy);
  } else {
    compile(options.model, options.strategy, {}, diagnostics);
  }
  if (report(diagnostics, context)) fmt::print("{}: no errors\n", options.strategy);
}

}  // namespace

void register_check(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("check", "check a strategy, alone or against a model");
  sub->add_option("strategy", options->strategy, ".piper file")->required();
  sub->add_option("model", options->model, "ONNX file");
  sub->footer("Example:\n  piper check strategies/1f1b.piper models/gpt/gpt.onnx");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
