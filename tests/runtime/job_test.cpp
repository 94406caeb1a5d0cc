// The small parts of the launcher: messages, lines, status texts, which cause was first, where a rank is.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "runtime/child_process.h"
#include "runtime/status.h"
#include "runtime/supervisor.h"
#include "tests/runtime/fake_job.h"

namespace piper::runtime {

TEST_CASE("settings survive the way to the worker", "[job]") {
  WorkerSettings s;
  s.plan_folder = "a \"plan\"\nwith a line";
  s.rank = 3;
  s.world_size = 8;
  s.launcher_pid = 12;
  s.store_host = "127.0.0.1";
  s.store_port = 4242;
  s.token = "secret";
  s.timeout_seconds = 1.5;
  s.run = {"m.onnx", "text:f", false, 77, 5, "metrics", "save", "grads", "trace", true};
  const std::string line = to_json_line(s);
  CHECK(line.find('\n') == line.size() - 1);
  auto back = parse_settings(line);
  REQUIRE(back);
  CHECK(to_json_line(*back) == line);
  CHECK(back->run.steps == 77);
  CHECK_FALSE(back->run.shuffle);
  CHECK(back->run.deterministic_delays);
  for (const std::string bad : {"", "{}", "[1]", "{\"plan\":3}", line.substr(0, line.size() / 2).c_str()}) {
    CHECK_FALSE(parse_settings(bad));
  }
}

TEST_CASE("messages survive the way to the launcher, infinite and broken ones too", "[job]") {
  const double inf = std::numeric_limits<double>::infinity();
  StepReport step{4, std::nan(""), inf, 1e-3, 0.1, true, 5, 6};
  auto back = parse_message(to_json_line(step));
  REQUIRE(back);
  CHECK(std::isnan(std::get<StepReport>(*back).loss));
  CHECK(std::get<StepReport>(*back).grad_norm == inf);
  CHECK(std::get<StepReport>(*back).skipped);
  CHECK(std::get<StepReport>(*back).tokens == 6);

  RunSummary summary;
  summary.losses = {0.1, -inf, 1.0 / 3};
  summary.arena_bytes = int64_t{1} << 40;
  back = parse_message(to_json_line(DoneMessage{summary}));
  REQUIRE(back);
  CHECK(std::get<DoneMessage>(*back).summary.losses == summary.losses);  // bit for bit
  CHECK(std::get<DoneMessage>(*back).summary.arena_bytes == summary.arena_bytes);

  back = parse_message(to_json_line(ErrorMessage{5, support::ErrorKind::kInternal, "m\xff", "h", true}));
  REQUIRE(back);
  CHECK(std::get<ErrorMessage>(*back).echo);
  CHECK(std::get<ErrorMessage>(*back).kind == support::ErrorKind::kInternal);
  for (const std::string bad : {"", "{", "{\"type\":\"x\"}", "{\"type\":\"step\"}"}) CHECK_FALSE(parse_message(bad));
}

TEST_CASE("lines are cut at newlines, wherever the reads end", "[job]") {
  for (size_t chunk : {1, 2, 3, 100}) {
    LineSplitter splitter(8);
    std::vector<std::string> lines;
    auto sink = [&](const std::string& line) { lines.push_back(line); };
    const std::string text = "a\n\nbc\n12345678\nlonger than eight\nrest";
    for (size_t i = 0; i < text.size(); i += chunk) splitter.feed(std::string_view(text).substr(i, chunk), sink);
    splitter.flush(sink);
    splitter.flush(sink);
    std::string all;
    for (const auto& line : lines) all += line + "|";
    // A line of exactly the limit may have its newline seen with it or after it.
    CHECK(all.find("a||bc|12345678|") == 0);
    CHECK(all.find("longer t|han eigh|t|rest|") != std::string::npos);
  }
}

TEST_CASE("the first cause is the earliest that is no echo", "[job]") {
  auto cause = [](int rank, int64_t at, bool echo) { return Cause{rank, at, echo, {}}; };
  CHECK(first_cause({cause(0, 5, true), cause(1, 9, false), cause(2, 7, false)}).rank == 2);
  CHECK(first_cause({cause(0, 5, true), cause(1, 3, true)}).rank == 1);
}

TEST_CASE("a message names its rank once", "[job]") {
  CHECK(about_rank(1, "disk full", ": ") == "rank 1: disk full");
  CHECK(about_rank(1, "rank 1, step 3: disk full", ": ") == "rank 1, step 3: disk full");
  CHECK(about_rank(1, "rank 12 is missing", ": ") == "rank 1: rank 12 is missing");
}

TEST_CASE("where a rank is", "[job]") {
  const plan::Plan plan = fake_plan(2);
  CHECK(position_text(plan, 1, 0) == "step 0, 0 of 4 instructions done, next in order: zero `t0`");
  CHECK(position_text(plan, 1, 11) == "step 2, 3 of 4 instructions done, next in order: zero `t3`");
}

TEST_CASE("status lines", "[job]") {
  StepReport report;
  report.step = 2;
  report.loss = 2.302585;
  report.grad_norm = 1.2345;
  report.samples = 4;
  report.tokens = 4096;
  CHECK(step_text(report, 10, 0.5) == "step 3/10  loss 2.3026  norm 1.23  8 samples/s  8.2 k tokens/s  left 0:04");
  report.step = 9;
  report.tokens = 0;
  report.grad_norm = 0;
  CHECK(step_text(report, 10, 0.5) == "step 10/10  loss 2.3026  8 samples/s");
  report.skipped = true;
  report.loss = std::nan("");
  CHECK(step_text(report, 10, 0) == "step 10/10  loss nan  skipped: gradients not finite");
  CHECK(clock_text(65.4) == "1:05");
  CHECK(clock_text(7389) == "2:03:09");
}

}  // namespace piper::runtime
