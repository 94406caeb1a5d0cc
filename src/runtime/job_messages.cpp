#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/job.h"

namespace piper::runtime {

namespace {

using nlohmann::json;

// JSON has no numbers for these, and a loss may well be one of them.
json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
double to_double(const json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}
json numbers(const std::vector<double>& values) {
  json list = json::array();
  for (double value : values) list.push_back(number(value));
  return list;
}
std::vector<double> to_doubles(const json& list) {
  std::vector<double> values;
  for (const json& value : list) values.push_back(to_double(value));
  return values;
}

json to_json(const RunOptions& run) {
  return {{"model", run.model},
          {"data", run.data},
          {"shuffle", run.shuffle},
          {"steps", run.steps},
          {"threads", run.threads},
          {"metrics", run.metrics},
          {"save", run.save},
          {"save_gradients", run.save_gradients},
          {"trace", run.trace},
          {"deterministic_delays", run.deterministic_delays}};
}
RunOptions to_run_options(const json& j) {
  RunOptions run;
  j.at("model").get_to(run.model);
  j.at("data").get_to(run.data);
  j.at("shuffle").get_to(run.shuffle);
  j.at("steps").get_to(run.steps);
  j.at("threads").get_to(run.threads);
  j.at("metrics").get_to(run.metrics);
  j.at("save").get_to(run.save);
  j.at("save_gradients").get_to(run.save_gradients);
  j.at("trace").get_to(run.trace);
  j.at("deterministic_delays").get_to(run.deterministic_delays);
  return run;
}

json to_json(const ProgressMessage& m) {
  return {{"type", "progress"}, {"phase", static_cast<int>(m.phase)}, {"instructions", m.instructions}};
}
json to_json(const StepReport& r) {
  return {{"type", "step"},           {"step", r.step},       {"loss", number(r.loss)},
          {"norm", number(r.grad_norm)}, {"lr", number(r.lr)},  {"seconds", number(r.seconds)},
          {"skipped", r.skipped},     {"samples", r.samples}, {"tokens", r.tokens}};
}
json to_json(const ErrorMessage& m) {
  return {{"type", "error"},      {"at", m.at_ns},     {"kind", static_cast<int>(m.kind)},
          {"message", m.message}, {"help", m.help},    {"echo", m.echo}};
}
json to_json(const DoneMessage& m) {
  return {{"type", "done"},
          {"losses", numbers(m.summary.losses)},
          {"norms", numbers(m.summary.grad_norms)},
          {"seconds", number(m.summary.seconds)},
          {"arena_bytes", m.summary.arena_bytes},
          {"bytes_sent", m.summary.bytes_sent},
          {"instructions", m.summary.instructions}};
}

StepReport to_step(const json& j) {
  StepReport r;
  j.at("step").get_to(r.step);
  r.loss = to_double(j.at("loss"));
  r.grad_norm = to_double(j.at("norm"));
  r.lr = to_double(j.at("lr"));
  r.seconds = to_double(j.at("seconds"));
  j.at("skipped").get_to(r.skipped);
  j.at("samples").get_to(r.samples);
  j.at("tokens").get_to(r.tokens);
  return r;
}
ErrorMessage to_error(const json& j) {
  ErrorMessage m;
  j.at("at").get_to(m.at_ns);
  m.kind = static_cast<support::ErrorKind>(j.at("kind").get<int>());
  j.at("message").get_to(m.message);
  j.at("help").get_to(m.help);
  j.at("echo").get_to(m.echo);
  return m;
}
RunSummary to_summary(const json& j) {
  RunSummary s;
  s.losses = to_doubles(j.at("losses"));
  s.grad_norms = to_doubles(j.at("norms"));
  s.seconds = to_double(j.at("seconds"));
  j.at("arena_bytes").get_to(s.arena_bytes);
  j.at("bytes_sent").get_to(s.bytes_sent);
  j.at("instructions").get_to(s.instructions);
  return s;
}

// One line: newlines in strings are escaped, bytes that are not UTF-8 replaced.
std::string line_of(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string to_json_line(const WorkerSettings& s) {
  return line_of({{"plan", s.plan_folder},
                  {"rank", s.rank},
                  {"world_size", s.world_size},
                  {"launcher_pid", s.launcher_pid},
                  {"store_host", s.store_host},
                  {"store_port", s.store_port},
                  {"token", s.token},
                  {"timeout_seconds", s.timeout_seconds},
                  {"run", to_json(s.run)}});
}

Expected<WorkerSettings> parse_settings(const std::string& line) {
  try {
    const json j = json::parse(line);
    WorkerSettings s;
    j.at("plan").get_to(s.plan_folder);
    j.at("rank").get_to(s.rank);
    j.at("world_size").get_to(s.world_size);
    j.at("launcher_pid").get_to(s.launcher_pid);
    j.at("store_host").get_to(s.store_host);
    j.at("store_port").get_to(s.store_port);
    j.at("token").get_to(s.token);
    j.at("timeout_seconds").get_to(s.timeout_seconds);
    s.run = to_run_options(j.at("run"));
    return s;
  } catch (const std::exception& e) {
    return support::user_error(fmt::format("a worker's settings cannot be read: {}", e.what()),
                               "workers are started by `piper launch`");
  }
}

std::string to_json_line(const WorkerMessage& message) {
  return line_of(std::visit([](const auto& m) { return to_json(m); }, message));
}

Expected<WorkerMessage> parse_message(const std::string& line) {
  try {
    const json j = json::parse(line);
    const std::string type = j.at("type");
    if (type == "progress") {
      return ProgressMessage{static_cast<Phase>(j.at("phase").get<int>()), j.at("instructions").get<int64_t>()};
    }
    if (type == "step") return to_step(j);
    if (type == "error") return to_error(j);
    if (type == "done") return DoneMessage{to_summary(j)};
    return support::user_error(fmt::format("unknown message `{}`", type));
  } catch (const std::exception& e) {
    return support::user_error(fmt::format("a worker's message cannot be read: {}", e.what()));
  }
}

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace piper::runtime
