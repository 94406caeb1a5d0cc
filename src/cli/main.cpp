// Entry of `piper`.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/cli.h"

namespace piper::cli {

bool wants_color(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color && *no_color) return false;
  return isatty(fd) && !(term && std::string(term) == "dumb");
}

bool Context::color() const { return wants_color(STDERR_FILENO); }

bool report(const support::Diagnostics& diagnostics, Context& context) {
  using Format = support::Diagnostics::Format;
  const Format format = context.message_format == "short"  ? Format::kShort
                        : context.message_format == "json" ? Format::kJson
                                                           : Format::kHuman;
  const std::string text = diagnostics.render(format, format == Format::kHuman && context.color());
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (diagnostics.has_errors()) context.exit_code = kExitUser;
  return !diagnostics.has_errors();
}

void report(const support::Error& error, Context& context) {
  const bool color = context.color();
  std::fprintf(stderr, "%serror%s: %s\n", color ? "\033[1;31m" : "", color ? "\033[0m" : "", error.message.c_str());
  if (!error.help.empty()) std::fprintf(stderr, "  = help: %s\n", error.help.c_str());
  context.exit_code = static_cast<int>(error.kind);
}

// An error for the first option that neither the subcommand nor `piper` has, with the one that was meant; "" when there is
// none.
static std::string unknown_option(const CLI::App& app, const CLI::App* sub, int argc, char** argv) {
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
    return "error: unknown option `" + name + "`\n" + (meant.empty() ? "" : "  = help: did you mean `" + meant + "`?\n");
  }
  return "";
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
    // An unknown word is most often a misspelt subcommand.
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
    if (argc > 1 && app.get_subcommands().empty() && argv[1][0] != '-') {
      std::fprintf(stderr, "error: unknown command `%s`\n", argv[1]);
      const std::string meant = piper::support::did_you_mean(argv[1], names);
      if (!meant.empty()) std::fprintf(stderr, "  = help: did you mean `%s`?\n", meant.c_str());
      return kExitUsage;
    }
    const CLI::App* sub = app.get_subcommands().empty() ? nullptr : app.get_subcommands().front();
    const std::string unknown = unknown_option(app, sub, argc, argv);
    if (!unknown.empty()) {
      std::fprintf(stderr, "%s", unknown.c_str());
    } else {
      std::fprintf(stderr, "error: %s\n", e.what());
    }
    std::fprintf(stderr, "  = help: `piper%s%s --help` lists the options\n", sub ? " " : "", sub ? sub->get_name().c_str() : "");
    return kExitUsage;
  }
  return context.exit_code;
}
