// piper explain CODE
#include "support/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/cli.h"

namespace piper::cli {

namespace {

constexpr support::Code kCodes[] = {
#define PIPER_DIAGNOSTIC(code, severity, title) support::Code::code,
#include "support/diagnostics.def"
#undef PIPER_DIAGNOSTIC
};

void run(std::string code, bool list, Context& context) {
  if (list) {
    for (support::Code c : kCodes) fmt::print("{}  {}\n", support::code_name(c), support::code_title(c));
    return;
  }
  std::transform(code.begin(), code.end(), code.begin(), [](unsigned char c) { return std::toupper(c); });
  std::vector<std::string> names;
  for (support::Code c : kCodes) {
    names.emplace_back(support::code_name(c));
    if (names.back() == code) {
      fmt::print("{}", support::explain_page(c));
      return;
    }
  }
  const std::string meant = support::did_you_mean(code, names);
  report(support::Error{support::ErrorKind::kUser, fmt::format("there is no code `{}`", code),
                        meant.empty() ? "`piper explain --list` lists all codes" : fmt::format("did you mean `{}`?", meant)},
         context);
}

}  // namespace

void register_explain(CLI::App& app, Context& context) {
  auto code = std::make_shared<std::string>();
  auto list = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand("explain", "explain a diagnostic code");
  sub->add_option("code", *code, "as in `error[E0504]`");
  sub->add_flag("--list", *list, "list all codes");
  sub->footer("Example:\n  piper explain E0504");
  sub->callback([code, list, &context] { run(*code, *list, context); });
}

}  // namespace piper::cli
