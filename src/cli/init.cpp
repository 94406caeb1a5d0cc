// piper init MODEL
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "cli/cli.h"
#include "cli/compile_model.h"
#include "cli/pairs.h"
#include "cli/suggest.h"
#include "frontend/onnx/import.h"
#include "frontend/piper/format.h"
#include "support/error.h"

namespace piper::cli {

namespace {

struct Options {
  std::string model, output;
  SuggestOptions suggest;
  std::vector<std::string> dims;
  bool force = false;
};

// The suggestion in the one style; it is our own text, so a mistake in it is ours.
std::string formatted(const Suggestion& suggestion) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  const auto text = frontend::format_file(sources.add("suggestion", suggestion.text), diagnostics);
  PIPER_CHECK(text.has_value(), "the suggested strategy has mistakes:\n" + diagnostics.render());
  return *text;
}

bool write_file(const Options& options, const std::string& text, Context& context) {
  if (!options.force && std::filesystem::exists(options.output)) {
    report(support::Error{support::ErrorKind::kUser, fmt::format("`{}` is there already", options.output),
                          "give another name with -o, or --force to replace it"}, context);
    return false;
  }
  std::ofstream out(options.output, std::ios::binary | std::ios::trunc);
  if ((out << text) && out.flush()) return true;
  report(support::Error{support::ErrorKind::kUser, fmt::format("cannot write `{}`", options.output), ""}, context);
  return false;
}

void run(Options options, Context& context) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  frontend::ImportOptions import;
  import.dims = options.suggest.dims = dim_sizes(options.dims);
  const auto model = frontend::import_onnx(options.model, import, diagnostics);
  if (!report(diagnostics, context) || !model) return;

  const Suggestion suggestion = suggest(*model, options.suggest);
  const int64_t stages = options.suggest.pp * (options.suggest.schedule == "interleaved" ? 2 : 1);
  if (options.suggest.pp > 1 && stages > suggestion.layers) {
    report(support::Error{support::ErrorKind::kUser,
                          fmt::format("the model has {} numbered blocks, which do not make {} pipeline stages", suggestion.layers, stages),
                          suggestion.layers == 0 ? "`piper inspect` lists the paths of its operations" : fmt::format("use --pp {} or less", suggestion.layers)},
           context);
    return;
  }
  const std::string text = formatted(suggestion);
  if (options.output == "-") {
    fmt::print("{}", text);
    return;
  }
  if (!write_file(options, text, context)) return;
  // What it wrote is compiled, so that its first use is no surprise.
  support::SourceMap again;
  support::Diagnostics problems(again);
  compile(options.model, options.output, {}, problems);
  if (!report(problems, context)) return;
  fmt::print("{0} is written; it compiles. Next:\n  piper compile {1} {0} -o model.plan\n  piper launch model.plan --data synthetic --steps 10\n",
             options.output, options.model);
}

}  // namespace

void register_init(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("init", "write a first strategy for a model");
  sub->add_option("model", options->model, "ONNX file")->required();
  sub->add_option("-o,--output", options->output, "file to write, - for standard output")->default_val("strategy.piper");
  sub->add_option("--pp", options->suggest.pp, "pipeline ranks")->check(CLI::PositiveNumber)->default_val(1);
  sub->add_option("--dp", options->suggest.dp, "data-parallel replicas")->check(CLI::PositiveNumber)->default_val(1);
  sub->add_option("--batch", options->suggest.batch, "samples of a step")->check(CLI::PositiveNumber)->default_val(16);
  sub->add_option("--schedule", options->suggest.schedule, "1f1b, gpipe or interleaved")
      ->check(CLI::IsMember({"1f1b", "gpipe", "interleaved"}))
      ->default_val("1f1b");
  sub->add_option("-D", options->dims, "size of a symbolic dim, name=size")->allow_extra_args(false);
  sub->add_flag("--force", options->force, "replace the file when it is there");
  sub->footer("Example:\n  piper init models/gpt/gpt.onnx --pp 2 --dp 2 -o gpt.piper");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
