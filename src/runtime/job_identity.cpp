#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <vector>

#include "plan/plan_io.h"
#include "runtime/job.h"

namespace piper::runtime {

namespace {

// Not a build id of the linker, which not every toolchain writes.
uint64_t executable_hash() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  std::vector<char> block(1 << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    XXH3_64bits_update(state, block.data(), static_cast<size_t>(file.gcount()));
  }
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

}  // namespace

std::string Identity::to_text() const { return fmt::format("{:016x} {:016x}", build, plan); }

Identity identity_of(const plan::Plan& plan) { return {executable_hash(), plan::plan_hash(plan)}; }

Expected<void> check_identity(int rank, const Identity& own, const std::string& launcher_text) {
  if (own.to_text() == launcher_text) return {};
  const size_t space = std::min(launcher_text.find(' '), launcher_text.size());
  const std::string launcher_build = launcher_text.substr(0, space);
  const std::string build = fmt::format("{:016x}", own.build);
  // The build first: another build may well hash the same plan differently.
  if (launcher_build != build) {
    return support::user_error(
        fmt::format("rank {} runs another build of piper ({}) than the launcher ({})", rank, build, launcher_build),
        "install the same build everywhere, and do not replace it while jobs start");
  }
  return support::user_error(
      fmt::format("rank {} has another plan ({:016x}) than the launcher ({})", rank, own.plan,
                  launcher_text.substr(std::min(space + 1, launcher_text.size()))),
      "the plan was written again while the job started, or a host has an old copy");
}

std::string about_rank(int rank, const std::string& message, std::string_view separator) {
  const std::string name = fmt::format("rank {}", rank);
  const bool longer_number = message.size() > name.size() && std::isdigit(message[name.size()]);
  const bool named = message.starts_with(name) && !longer_number;
  return named ? message : fmt::format("{}{}{}", name, separator, message);
}

std::string position_text(const plan::Plan& plan, int rank, int64_t instructions) {
  const auto& entry = plan.ranks[static_cast<size_t>(rank)];
  const auto& program = plan.programs[static_cast<size_t>(entry.program)];
  const int64_t per_step = static_cast<int64_t>(program.instructions.size());
  if (per_step == 0) return "";
  const int64_t inside = instructions % per_step;
  // Streams run side by side, so this is the neighbourhood of what runs and not a certainty.
  const plan::Instruction& next = program.instructions[static_cast<size_t>(inside)];
  std::string what = plan::opcode_name(next.opcode);
  if (!next.tensor.empty()) what += fmt::format(" `{}`", next.tensor);
  if (next.chunk >= 0) what += fmt::format(" `{}`", plan.chunks[static_cast<size_t>(next.chunk)].name);
  return fmt::format("step {}, {} of {} instructions done, next in order: {}", instructions / per_step, inside,
                     per_step, what);
}

}  // namespace piper::runtime
