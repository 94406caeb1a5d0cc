// piper inspect MODEL
#include "inspect/inspect.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/compile_model.h"
#include "cli/pairs.h"
#include "frontend/piper/strategy_loader.h"
#include "inspect/open_model.h"
#include "ops/op.h"

namespace piper::cli {

namespace {

struct Options {
  std::string model, strategy;
  std::vector<std::string> dims;
  inspect::InspectOptions show;
  bool json = false;
};

// Colours and the width of standard output, when it is a terminal.
inspect::Style style_of_terminal() {
  inspect::Style style;
  if (!isatty(STDOUT_FILENO)) return style;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) style.width = size.ws_col;
  style.color = wants_color(STDOUT_FILENO);
  return style;
}

// The parts of a strategy that do not need the model, into `strategy` and `import`.
bool read_header(frontend::StrategyLoader& loader, const Options& options, ir::Strategy& strategy,
                 frontend::ImportOptions& import) {
  if (!loader.parse(options.strategy) || !loader.evaluate_header(strategy)) return false;
  import.dims = strategy.dims;
  import.treats = strategy.treats;
  return true;
}

void run(const Options& options, Context& context) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  frontend::ImportOptions import_options;
  frontend::LoadOptions load;
  load.library_dirs = library_dirs();
  ir::Strategy strategy;
  if (!options.strategy.empty()) load.defines = pairs(options.dims, "-D");
  frontend::StrategyLoader loader(diagnostics, load);
  if (options.strategy.empty()) {
    import_options.dims = dim_sizes(options.dims);
  } else if (!read_header(loader, options, strategy, import_options)) {
    report(diagnostics, context);
    return;
  }
  frontend::ImportNotes notes;
  const auto model = inspect::open_model(options.model, import_options, notes, diagnostics);
  if (!model && !notes.sketch) {
    report(diagnostics, context);
    return;
  }
  const inspect::Inspection inspection = model
                                             ? inspect::inspect_model(options.model, *model, notes, strategy.train.loss)
                                             : inspect::inspect_sketch(options.model, notes);
  std::optional<inspect::StrategyFacts> facts;
  if (model && !options.strategy.empty() && loader.has_train()) {
    const auto flops = [&](ir::OpId op) { return ops::flops_of(*model, model->op(op), 1); };
    if (loader.evaluate_body(&*model, flops, strategy) && !diagnostics.has_errors()) facts = inspect::strategy_facts(*model, strategy, diagnostics);
  }
  if (options.json) {
    fmt::print("{}", inspect::inspect_json(inspection, facts ? &*facts : nullptr));
  } else {
    fmt::print("{}", inspect::inspect_text(inspection, options.show));
    if (facts) fmt::print("\n{}", inspect::strategy_text(*model, *facts, options.show.style));
  }
  std::fflush(stdout);
  report(diagnostics, context);
}

}  // namespace

void register_inspect(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("inspect", "show a model's paths, parameters, shapes and cost");
  sub->add_option("model", options->model, "ONNX file")->required();
  sub->add_option("--strategy", options->strategy,
                  ".piper file: its tags, what was adopted by whom, chunks and placements");
  sub->add_option("-D", options->dims, "size of a symbolic dim, name=size; with --strategy, a parameter's value")
      ->allow_extra_args(false);
  sub->add_option("--depth", options->show.depth, "levels of modules that are shown")->check(CLI::NonNegativeNumber);
  sub->add_option("--batch", options->show.batch, "samples that costs are shown for (default: one)")
      ->check(CLI::PositiveNumber);
  sub->add_option("--path", options->show.path, "glob: only the modules that it matches");
  sub->add_flag("--params", options->show.parameters, "every tensor of the file: what it is, and why");
  sub->add_flag("--ops", options->show.operations, "every operation, one a line");
  sub->add_flag("--json", options->json, "for programs");
  sub->footer("Example:\n  piper inspect models/gpt/gpt.onnx");
  sub->callback([options, &context] {
    options->show.style = style_of_terminal();
    run(*options, context);
  });
}

}  // namespace piper::cli
