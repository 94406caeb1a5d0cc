// piper verify PLAN
#include "verify/verify.h"

#include <fmt/format.h>

#include "cli/cli.h"
#include "plan/plan_io.h"

namespace piper::cli {

namespace {

void run(const std::string& folder, Context& context) {
  const auto plan = plan::read_plan(folder);
  if (!plan) return report(plan.error(), context);
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  for (const verify::Finding& f : verify::verify(*plan)) {
    auto& d = diagnostics.report(f.code, f.message);
    for (const std::string& note : f.notes) d.note(note);
  }
  if (report(diagnostics, context)) fmt::print("{}: matched, free of deadlock, free of races\n", folder);
}

}  // namespace

void register_verify(CLI::App& app, Context& context) {
  auto folder = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand("verify", "prove a plan: messages match, no deadlock, no race");
  sub->add_option("plan", *folder, "folder of the plan")->required();
  sub->footer("Example:\n  piper verify gpt.plan");
  sub->callback([folder, &context] { run(*folder, context); });
}

}  // namespace piper::cli
