// The command line: one file a subcommand, each with a `register_<name>` that adds it to the app.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "support/diagnostics.h"
#include "support/error.h"

namespace piper::cli {

// What all subcommands share. A subcommand's callback sets the exit code.
struct Context {
  int exit_code = 0;
  std::string message_format = "human";
  bool color() const;  // of standard error
};

constexpr int kExitUser = 1;

#define PIPER_COMMANDS(X) X(check) X(compile) X(explain) X(fmt) X(init) X(inspect) X(launch) X(show) X(verify) X(worker)
#define PIPER_DECLARE(name) void register_##name(CLI::App& app, Context& context);
PIPER_COMMANDS(PIPER_DECLARE)
#undef PIPER_DECLARE

// Whether a descriptor is a terminal that shows colours, and the user wants them.
bool wants_color(int fd);

// Prints the collected diagnostics to standard error in the chosen format and sets the exit code when there are errors.
// Returns whether there were none.
bool report(const support::Diagnostics& diagnostics, Context& context);
// Prints an error as one block and sets the exit code by its kind.
void report(const support::Error& error, Context& context);

}  // namespace piper::cli
