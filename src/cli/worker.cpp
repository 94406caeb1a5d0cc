// piper worker (hidden): a rank started by `piper launch`, which writes its settings to standard input.
#include "cli/cli.h"
#include "runtime/launch.h"

namespace piper::cli {

void register_worker(CLI::App& app, Context& context) {
  CLI::App* sub = app.add_subcommand("worker", "a rank of a job, started by launch");
  sub->group("");
  sub->callback([&context] { context.exit_code = runtime::worker_main(); });
}

}  // namespace piper::cli
