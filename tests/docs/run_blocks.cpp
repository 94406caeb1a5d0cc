#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/docs/blocks.h"

namespace piper::docs {

namespace {

struct Ran {
  int code = -1;
  std::vector<std::string> output;
};

// Runs a script with `piper` on the PATH; standard output and error together.
Ran shell(const std::string& script, const std::string& folder) {
  const std::string file = folder + "/.script";
  std::ofstream(file) << "set -eu\n" << script << "\n";
  const std::string binaries = std::filesystem::path(PIPER_BINARY).parent_path().string();
  const std::string command = fmt::format(
      "cd '{}' && PATH='{}':\"$PATH\" NO_COLOR=1 timeout 300 bash .script 2>&1 </dev/null", folder, binaries);
  Ran ran;
  std::string text;
  std::FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> chunk;
  while (const size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe)) text.append(chunk.data(), n);
  ran.code = WEXITSTATUS(pclose(pipe));
  ran.output = lines_of(text);
  return ran;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

std::string run_block(const Block& block, const std::string& folder, std::vector<std::string>* actual) {
  for (const std::string& command : block.setup) {
    if (const Ran ran = shell(command, folder); ran.code != 0)
      return fmt::format("setup `{}` ends with exit code {}\n{}", command, ran.code, joined(ran.output));
  }
  if (block.language == "sh") {
    const Ran ran = shell(joined(block.text), folder);
    *actual = block.text;
    return ran.code == 0 ? "" : fmt::format("exit code {}:\n{}", ran.code, joined(ran.output));
  }
  std::string wrong;
  for (const Command& command : commands_of(block)) {
    const Ran ran = shell(command.line, folder);
    if (block.output_of.empty()) {
      for (const std::string& line : lines_of("$ " + command.line)) actual->push_back(line);
    }
    if (matches(command.output, ran.output)) {
      actual->insert(actual->end(), command.output.begin(), command.output.end());
    } else {
      actual->insert(actual->end(), ran.output.begin(), ran.output.end());
      wrong += fmt::format("`{}` answers\n{}instead of\n{}", command.line, joined(ran.output), joined(command.output));
    }
    const bool shows_error = std::any_of(command.output.begin(), command.output.end(), [](const std::string& line) {
      return line.find("error") != std::string::npos;
    });
    if (ran.code != 0 && !shows_error)
      wrong += fmt::format("`{}` ends with exit code {}\n{}", command.line, ran.code, joined(ran.output));
  }
  return wrong;
}

}  // namespace piper::docs
