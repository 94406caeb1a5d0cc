// piper launch PLAN --data …
#include "runtime/launch.h"

#include <fmt/format.h>

#include "cli/cli.h"
#include "plan/plan_io.h"

namespace piper::cli {

namespace {

struct Options {
  runtime::LaunchOptions launch;
  bool in_order = false;
};

void run(Options options, Context& context) {
  const auto plan = plan::read_plan(options.launch.plan_folder);
  if (!plan) return report(plan.error(), context);
  options.launch.run.shuffle = !options.in_order;
  const auto summary = runtime::launch(*plan, options.launch);
  if (!summary) {
    report(summary.error(), context);
    if (const int signal = runtime::stop_signal()) context.exit_code = 128 + signal;
    return;
  }
  const runtime::RunSummary& s = *summary;
  if (s.losses.empty()) return;
  const double per_step = s.seconds / static_cast<double>(s.losses.size());
  fmt::print("{} steps in {:.1f} s ({:.1f} ms a step), loss {:.4f} -> {:.4f}\n", s.losses.size(), s.seconds, per_step * 1e3,
             s.losses.front(), s.losses.back());
}

}  // namespace

void register_launch(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  runtime::LaunchOptions& l = options->launch;
  CLI::App* sub = app.add_subcommand("launch", "train: run a plan on ranks of this machine");
  sub->add_option("plan", l.plan_folder, "folder of the plan")->required();
  sub->add_option("--data", l.run.data, "tokens.bin, text:FILE, FILE.safetensors or synthetic")->required();
  sub->add_option("--steps", l.run.steps, "optimizer steps")->check(CLI::PositiveNumber);
  sub->add_option("--model", l.run.model, "ONNX file with the initial weights (default: where the compiler read it)");
  sub->add_option("--threads", l.run.threads, "threads of each rank's compute stream (default: the cores shared out)")->check(CLI::NonNegativeNumber);
  sub->add_option("--save", l.run.save, "folder for the final weights, as safetensors");
  sub->add_option("--save-gradients", l.run.save_gradients, "file for the gradients of the first step, before clipping");
  sub->add_option("--metrics", l.run.metrics, "file for one JSON object a step");
  sub->add_option("--trace", l.run.trace, "file for a Chrome trace of the last step");
  sub->add_option("--timeout", l.timeout_seconds, "seconds without progress after which a rank counts as hung")->check(CLI::PositiveNumber);
  sub->add_option("--port", l.port, "port of the rendezvous (default: a free one)")->check(CLI::Range(0, 65535));
  sub->add_flag("--in-order", options->in_order, "samples in the order of the file, not shuffled");
  sub->add_flag("--in-process", l.in_process, "all ranks as threads of this process");
  sub->add_flag("-q,--quiet", l.quiet, "no status line");
  l.run.threads = 0;
  sub->footer("Example:\n  piper launch gpt.plan --data text:models/text/kjv.txt --steps 300 --save trained");
  sub->callback([options, &context] { run(*options, context); });
}

}  // namespace piper::cli
