// piper show PLAN
#include "plan/show.h"

#include <fmt/format.h>

#include "cli/cli.h"
#include "plan/plan_io.h"

namespace piper::cli {

namespace {

struct Options {
  std::string plan;
  bool memory = false, json = false;
};

void run(const Options& options, Context& context) {
  const auto plan = plan::read_plan(options.plan);
  if (!plan) return report(plan.error(), context);
  const std::string text = options.json ? plan::show_json(*plan) : options.memory ? plan::show_memory(*plan) : plan::show(*plan);
  fmt::print("{}", text);
}

}  // namespace

void register_show(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("show", "print a plan like a disassembler");
  sub->add_option("plan", options->plan, "folder of the plan")->required();
  sub->add_flag("--memory", options->memory, "peak memory per class of ranks, by kind");
  sub->add_flag("--json", options->json, "for programs");
  sub->footer("Example:\n  piper show gpt.plan --memory");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
