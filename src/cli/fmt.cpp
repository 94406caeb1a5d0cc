// piper fmt FILE...
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/cli.h"
#include "frontend/piper/format.h"
#include "frontend/piper/syntax_help.h"
#include "support/diff.h"

namespace piper::cli {

namespace {

struct Options {
  std::vector<std::string> files;
  bool check = false, diff = false;
};

// One file; false when it stays unformatted.
bool format_one(const std::string& path, const Options& options, Context& context) {
  const bool standard = path == "-";
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  int32_t file = -1;
  if (standard) {
    file = sources.add("<stdin>", std::string(std::istreambuf_iterator<char>(std::cin), {}));
  } else if (const auto read = frontend::read_text(path, {}, diagnostics)) {
    file = *read;
  }
  const auto formatted = file >= 0 ? frontend::format_file(file, diagnostics) : std::nullopt;
  if (!report(diagnostics, context) || !formatted) return false;
  const std::string& before = sources.text(file);
  if (options.diff) std::cout << support::unified_diff(before, *formatted, path, path + " (formatted)");
  if (options.check && *formatted != before && !options.diff) fmt::print("{}\n", path);
  if (options.check || options.diff) return *formatted == before;
  if (standard) {
    std::cout << *formatted;
  } else if (*formatted != before) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    if (!(out << *formatted) || !out.flush()) {
      report(support::Error{support::ErrorKind::kUser, fmt::format("cannot write `{}`", path), ""}, context);
      return false;
    }
  }
  return true;
}

void run(const Options& options, Context& context) {
  bool clean = true;
  for (const std::string& path : options.files) clean = format_one(path, options, context) && clean;
  if (options.check && !clean) context.exit_code = kExitUser;
}

}  // namespace

void register_fmt(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("fmt", "format strategy files");
  sub->add_option("files", options->files, ".piper files, written back; - is standard input to standard output")->required();
  sub->add_flag("--check", options->check, "write nothing; print the files that are not formatted and exit with 1");
  sub->add_flag("--diff", options->diff, "write nothing; print what would change");
  sub->footer("Example:\n  piper fmt strategies/*.piper");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
