#include "runtime/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "plan/show.h"

namespace piper::runtime {

namespace {

using nlohmann::json;

json named(const char* what, int rank, size_t stream, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", stream}, {"args", {{"name", name}}}};
}

json event(const plan::Plan& plan, int rank, const plan::Instruction& in, size_t index, const Interval& time,
           int64_t origin) {
  json args = {{"instruction", index}};
  if (in.microbatch >= 0) args["microbatch"] = in.microbatch;
  if (in.source >= 0) args["source"] = plan.sources[static_cast<size_t>(in.source)];
  return {{"ph", "X"},
          {"name", plan::action_text(plan, rank, in)},
          {"cat", plan::opcode_name(in.opcode)},
          {"pid", rank},
          {"tid", in.stream},
          {"ts", static_cast<double>(time.begin - origin) * 1e-3},
          {"dur", static_cast<double>(time.end - time.begin) * 1e-3},
          {"args", args}};
}

}  // namespace

support::Expected<void> write_trace(const plan::Plan& plan, const std::vector<StepTrace>& traces,
                                    const std::string& path) {
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (const StepTrace& trace : traces) {
    for (const Interval& time : trace.times) origin = std::min(origin, time.begin);
  }
  std::ofstream file(path);
  const char* separator = "[\n";
  auto put = [&](const json& entry) {
    file << separator << entry.dump(-1, ' ', false, json::error_handler_t::replace);
    separator = ",\n";
  };
  for (size_t r = 0; r < traces.size(); r++) {
    const int rank = static_cast<int>(r);
    const plan::Program& program = plan.programs[static_cast<size_t>(plan.ranks[r].program)];
    put(named("process_name", rank, 0, fmt::format("rank {}", rank)));
    for (size_t s = 0; s < program.streams.size(); s++) put(named("thread_name", rank, s, program.streams[s].name));
    for (size_t i = 0; i < traces[r].times.size(); i++) {
      put(event(plan, rank, program.instructions[i], i, traces[r].times[i], origin));
    }
  }
  file << "\n]\n";
  file.close();
  if (!file) return support::user_error("cannot write `" + path + "`");
  return {};
}

}  // namespace piper::runtime
