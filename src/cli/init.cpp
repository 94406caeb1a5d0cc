// piper init MODEL
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "cli/cli.h"
#include "cli/compile_model.h"
#include "cli/pairs.h"
#include "frontend/onnx/import.h"
#include "frontend/piper/format.h"
#include "inspect/first_strategy.h"
#include "inspect/open_model.h"

namespace piper::cli {

namespace {

namespace fs = std::filesystem;

struct Options {
  inspect::FirstStrategyOptions first;
  std::string output;
  std::vector<std::string> dims;
  bool force = false;
};

// The model, with a size for every dim. Nothing when it cannot be imported, which is reported.
std::optional<ir::Model> import(Options& options, support::Diagnostics& diagnostics) {
  frontend::ImportOptions import;
  import.dims = dim_sizes(options.dims);
  frontend::ImportNotes notes;
  auto model = inspect::open_model(options.first.model_file, import, notes, diagnostics);
  // A strategy binds dims by their names.
  if (model && !notes.assumed_unnamed.empty())
    return frontend::import_onnx(options.first.model_file, import, diagnostics);
  options.first.dims = import.dims;
  for (const auto& [name, inputs] : notes.assumed) options.first.dims[name] = notes.assumed_size;
  return model;
}

bool write(const std::string& path, const std::string& text, Context& context) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (out << text && out.flush()) return true;
  report(support::Error{support::ErrorKind::kUser, fmt::format("cannot write `{}`", path), ""}, context);
  return false;
}

std::string formatted(const std::string& path, const std::string& text) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  const auto out = frontend::format_file(sources.add(path, text), diagnostics);
  PIPER_CHECK(out.has_value(), "`init` wrote a strategy that does not parse:\n" + diagnostics.render());
  return *out;
}

void run(Options options, Context& context) {
  const bool standard = options.output == "-";
  std::string& output = options.first.strategy_file = options.output;
  if (output.empty() || standard) output = fs::path(options.first.model_file).stem().string() + ".piper";
  std::error_code ignored;
  if (!standard && !options.force && fs::exists(output, ignored)) {
    return report(support::Error{support::ErrorKind::kUser, fmt::format("`{}` is there already", output),
                                 "give another name with -o, or --force to replace it"},
                  context);
  }
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  const auto model = import(options, diagnostics);
  if (!report(diagnostics, context) || !model) return;
  const auto text = inspect::first_strategy(*model, options.first);
  if (!text) return report(text.error(), context);
  const std::string pretty = formatted(output, *text);
  if (standard) {
    fmt::print("{}", pretty);
    return;
  }
  if (!write(output, pretty, context)) return;
  // What was written is what was promised, or the user reads what the compiler has against it.
  support::SourceMap written;
  support::Diagnostics verdict(written);
  const auto compiled = compile(options.first.model_file, output, {}, verdict);
  if (!report(verdict, context)) return;
  const std::string plan = fs::path(output).stem().string() + ".plan";
  fmt::print(
      "{} is written; it compiles. Next:\n  piper compile {} {} -o {}\n  piper launch {} --data synthetic --steps 10\n",
      output, options.first.model_file, output, plan, plan);
}

}  // namespace

void register_init(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("init", "write a first strategy for a model");
  sub->add_option("model", options->first.model_file, "ONNX file")->required();
  sub->add_option("-o,--output", options->output,
                  "file to write (default: the model's name with .piper, here); `-` is standard output");
  sub->add_option("--pp", options->first.pp, "pipeline ranks")->check(CLI::PositiveNumber);
  sub->add_option("--dp", options->first.dp, "data-parallel replicas")->check(CLI::PositiveNumber);
  sub->add_option("--schedule", options->first.schedule, "order of microbatches in a pipeline")
      ->check(CLI::IsMember({"1f1b", "gpipe", "interleaved"}));
  sub->add_option("--batch", options->first.batch, "samples of a step")->check(CLI::PositiveNumber);
  sub->add_option("-D", options->dims, "size of a symbolic dim, name=size")->allow_extra_args(false);
  sub->add_flag("--force", options->force, "replace a file that is there");
  sub->footer("Example:\n  piper init models/gpt/gpt.onnx --pp 2 --dp 2 -o gpt.piper");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
