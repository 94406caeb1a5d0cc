#include "runtime/status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/strings.h"

namespace piper::runtime {

namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);  // on a terminal
constexpr auto kPlain = std::chrono::seconds(2);          // elsewhere: logs should not fill with steps

void write_line(FILE* stream, const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stream);
  std::fputc('\n', stream);
  std::fflush(stream);
}

// Significant and not decimal places: losses go from 10 to 1e-6 in one run.
std::string loss_text(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.5g}", loss) : fmt::format("{}", loss);
}

}  // namespace

StatusOptions StatusOptions::detect(int world_size, int64_t steps, bool quiet) {
  StatusOptions options;
  options.world_size = world_size;
  options.steps = steps;
  options.quiet = quiet;
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::strcmp(term, "dumb") == 0;
  options.terminal = ::isatty(STDERR_FILENO) == 1 && !dumb;
  const char* no_color = std::getenv("NO_COLOR");
  options.color = options.terminal && ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
  return options;
}

std::string clock_text(double seconds) {
  const int64_t s = std::llround(std::max(seconds, 0.0));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string step_text(const StepReport& report, int64_t steps, double seconds_per_step) {
  std::string text = fmt::format("step {}/{}  loss {}", report.step + 1, steps, loss_text(report.loss));
  if (report.skipped) text += "  skipped: gradients not finite";
  if (report.grad_norm > 0) text += fmt::format("  norm {:.3g}", report.grad_norm);
  if (seconds_per_step > 0) {
    auto rate = [&](int64_t count) {
      const double value = static_cast<double>(count) / seconds_per_step;
      return value < 100 ? fmt::format("{:.3g}", value) : support::human_count(std::llround(value));
    };
    if (report.samples > 0) text += fmt::format("  {} samples/s", rate(report.samples));
    if (report.tokens > 0) text += fmt::format("  {} tokens/s", rate(report.tokens));
    const int64_t left = steps - report.step - 1;
    if (left > 0) text += fmt::format("  left {}", clock_text(static_cast<double>(left) * seconds_per_step));
  }
  return text;
}

void Status::rank_line(int rank, bool is_error, const std::string& line) {
  clear();
  std::string prefix;
  if (options_.world_size > 1) {
    prefix = fmt::format("[rank {}] ", rank);
    // One of the six colours that read well on dark and light.
    if (options_.color) prefix = fmt::format("\x1b[3{}m{}\x1b[0m", 1 + rank % 6, prefix);
  }
  write_line(is_error ? stderr : stdout, prefix + line);
  draw();
}

void Status::note(const std::string& line) {
  clear();
  write_line(stderr, line);
  draw();
}

void Status::step(const StepReport& report) {
  if (options_.quiet) return;
  // The first step pays for warming up, so it does not count once there is another.
  const double weight = report.step <= 1 ? 1.0 : 0.1;
  seconds_per_step_ += weight * (report.seconds - seconds_per_step_);
  const bool last = report.step + 1 >= options_.steps;
  const auto now = Clock::now();
  const std::string text = step_text(report, options_.steps, seconds_per_step_);
  if (any_ && !last && !report.skipped && now - last_ < (options_.terminal ? Clock::duration(kRedraw) : kPlain)) return;
  any_ = true;
  last_ = now;
  if (!options_.terminal || report.skipped || last) {
    shown_.clear();
    note(text);
  } else {
    shown_ = text;
    draw();
  }
}

void Status::draw() {
  if (shown_.empty()) return;
  // Clearing to the end of the line before the text would flicker.
  const std::string text = "\r" + shown_ + "\x1b[K";
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Status::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace piper::runtime
