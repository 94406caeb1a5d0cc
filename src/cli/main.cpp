// Entry of `piper`.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cli/cli.h"
#include "support/render.h"

namespace piper::cli {

bool wants_color(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color && *no_color) return false;
  return isatty(fd) && !(term && std::string(term) == "dumb");
}

bool Context::color() const { return wants_color(STDERR_FILENO); }

static support::Diagnostics::Format format_of(const Context& context) {
  using Format = support::Diagnostics::Format;
  return context.message_format == "short" ? Format::kShort : context.message_format == "json" ? Format::kJson : Format::kHuman;
}

bool report(const support::Diagnostics& diagnostics, Context& context) {
  const std::string text = diagnostics.render(format_of(context), context.color());
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (diagnostics.has_errors()) context.exit_code = kExitUser;
  return !diagnostics.has_errors();
}

void report(const support::Error& error, Context& context) {
  const std::string text = support::render_error(error, format_of(context), context.color());
  std::fwrite(text.data(), 1, text.size(), stderr);
  context.exit_code = static_cast<int>(error.kind);
}

// The first option that neither the subcommand nor `piper` has, with the one that was meant; nothing when there is none.
static std::optional<support::Error> unknown_option(const CLI::App& app, const CLI::App* sub, int argc, char** argv) {
  std::vector<std::string> known;
  for (const CLI::App* owner : {&app, sub}) {
    if (!owner) continue;
    for (const CLI::Option* option : owner->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  }
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (word == "--") break;
    if (!word.starts_with("--") || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string meant = support::did_you_mean(name, known);
    return support::Error{support::ErrorKind::kUsage, "unknown option `" + name + "`", meant.empty() ? "" : "did you mean `" + meant + "`? "};
  }
  return std::nullopt;
}

// What is wrong with a command line that CLI11 cannot read.
static support::Error usage_error(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  support::Error error{support::ErrorKind::kUsage, e.what(), ""};
  const CLI::App* sub = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
  // An unknown word is most often a misspelt subcommand.
  if (argc > 1 && app.get_subcommands().empty() && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
    const std::string meant = support::did_you_mean(argv[1], names);
    error.message = "unknown command `" + std::string(argv[1]) + "`";
    error.help = meant.empty() ? "" : "did you mean `" + meant + "`? ";
  } else if (const auto unknown = unknown_option(app, sub, argc, argv)) {
    error = *unknown;
  }
  const std::string command = sub ? "piper " + sub->get_name() : "piper";
  error.help += "`" + command + " --help` lists the " + (sub ? "options" : "commands");
  return error;
}

}  // namespace piper::cli

int main(int argc, char** argv) {
  using namespace piper::cli;
  CLI::App app("Piper compiles an ONNX model and a .piper strategy into programs for distributed training, and runs them.\n"
               "\n  piper compile model.onnx strategy.piper -o model.plan\n  piper launch model.plan --data text:corpus.txt --steps 100",
               "piper");
  app.set_version_flag("--version", std::string(PIPER_VERSION));
  app.require_subcommand(1);
  app.fallthrough();
  Context context;
  app.add_option("--message-format", context.message_format, "how problems are printed: human, short or json")
      ->check(CLI::IsMember({"human", "short", "json"}));
#define PIPER_REGISTER(name) register_##name(app, context);
  PIPER_COMMANDS(PIPER_REGISTER)
#undef PIPER_REGISTER
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    // The option is not in the context when reading stopped before it.
    for (int i = 1; i < argc; i++) {
      const std::string word = argv[i];
      if (word.rfind("--message-format=", 0) == 0) context.message_format = word.substr(word.find('=') + 1);
    }
    report(usage_error(app, e, argc, argv), context);
  }
  return context.exit_code;
}
