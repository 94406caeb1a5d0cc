// piper inspect MODEL
#include <fmt/format.h>

#include "cli/cli.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/inspect.h"

namespace piper::cli {

namespace {

struct Options {
  std::string model;
  std::vector<std::string> dims;
  bool json = false, ops = false;
};

void run(const Options& options, Context& context) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  frontend::ImportOptions import;
  for (const std::string& word : options.dims) {
    const size_t at = word.find('=');
    int64_t size = 0;
    try {
      size = at == std::string::npos ? 0 : std::stoll(word.substr(at + 1));
    } catch (const std::exception&) {
    }
    if (size <= 0) throw CLI::ValidationError("-D", fmt::format("`{}` is not of the form dim=size", word));
    import.dims[word.substr(0, at)] = size;
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
  sub->add_option("-D", options->dims, "size of a symbolic dim, name=size")->allow_extra_args(false);
  sub->add_flag("--json", options->json, "for programs");
  sub->add_flag("--ops", options->ops, "every operation, one a line");
  sub->footer("Example:\n  piper inspect models/gpt/gpt.onnx");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
