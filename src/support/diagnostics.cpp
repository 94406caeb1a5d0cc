// The list of messages, their order, and the short and JSON forms. The block with carets is in render.cpp.
#include "support/diagnostics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/render.h"

namespace piper::support {

namespace {

struct Row {
  std::string_view name;
  Severity severity;
  std::string_view title;
};
constexpr Row kRows[] = {
#define PIPER_DIAGNOSTIC(code, severity, title) {#code, Severity::k##severity, title},
#include "support/diagnostics.def"
#undef PIPER_DIAGNOSTIC
};

const Row& row(Code code) { return kRows[static_cast<size_t>(code)]; }

std::string_view severity_name(Severity severity) { return severity == Severity::kError ? "error" : "warning"; }

}  // namespace

std::string_view code_name(Code code) { return row(code).name; }
std::string_view code_title(Code code) { return row(code).title; }
Severity code_severity(Code code) { return row(code).severity; }

Diagnostic& Diagnostic::label(SourceSpan at, std::string text) {
  labels.push_back({at, std::move(text)});
  return *this;
}

Diagnostic& Diagnostic::note(std::string text) {
  notes.push_back(std::move(text));
  return *this;
}

Diagnostic& Diagnostic::help(std::string text) {
  helps.push_back(std::move(text));
  return *this;
}

Diagnostic& Diagnostics::report(Code code, SourceSpan span, std::string message) {
  Diagnostic diagnostic;
  diagnostic.code = code;
  diagnostic.severity = code_severity(code);
  diagnostic.message = std::move(message);
  diagnostic.span = span;
  if (diagnostic.severity == Severity::kError) errors_++;
  all_.push_back(std::move(diagnostic));
  return all_.back();
}

namespace {

// Diagnostics with a place come first, by file and offset; the others follow as they were found.
std::vector<const Diagnostic*> sorted(const std::vector<Diagnostic>& all) {
  std::vector<const Diagnostic*> order;
  for (const Diagnostic& d : all) order.push_back(&d);
  std::stable_sort(order.begin(), order.end(), [](const Diagnostic* a, const Diagnostic* b) {
    if (a->span.valid() != b->span.valid()) return a->span.valid();
    if (!a->span.valid()) return false;
    return std::pair(a->span.file, a->span.begin) < std::pair(b->span.file, b->span.begin);
  });
  return order;
}

nlohmann::ordered_json span_json(const SourceMap& sources, const SourceSpan& span) {
  if (!span.valid()) return nullptr;
  LineColumn begin = sources.locate(span.file, span.begin), end = sources.locate(span.file, span.end);
  return {{"file", sources.name(span.file)},
          {"line", begin.line},
          {"column", begin.column},
          {"end_line", end.line},
          {"end_column", end.column}};
}

std::string json_line(const SourceMap& sources, const Diagnostic& d) {
  nlohmann::ordered_json labels = nlohmann::ordered_json::array();
  for (const Label& label : d.labels) {
    labels.push_back({{"span", span_json(sources, label.span)}, {"text", label.text}});
  }
  nlohmann::ordered_json object = {{"severity", severity_name(d.severity)},
                                   {"code", code_name(d.code)},
                                   {"title", code_title(d.code)},
                                   {"message", d.message},
                                   {"span", span_json(sources, d.span)},
                                   {"labels", labels},
                                   {"notes", d.notes},
                                   {"help", d.helps}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string short_line(const SourceMap& sources, const Diagnostic& d) {
  std::string where = sources.describe(d.span);
  if (!where.empty()) where += ": ";
  return printable(where + std::string(severity_name(d.severity)) + "[" + std::string(code_name(d.code)) + "]: " +
                   d.message) + "\n";
}

}  // namespace

std::string Diagnostics::render(Format format, bool color) const {
  std::string out;
  for (const Diagnostic* d : sorted(all_)) {
    switch (format) {
      case Format::kHuman:
        if (!out.empty()) out += "\n";
        out += render_block(sources_, *d, color);
        break;
      case Format::kShort: out += short_line(sources_, *d); break;
      case Format::kJson: out += json_line(sources_, *d); break;
    }
  }
  return out;
}

std::string render_error(const Error& error, Diagnostics::Format format, bool color) {
  if (format == Diagnostics::Format::kJson) {
    std::vector<std::string> helps;
    if (!error.help.empty()) helps.push_back(error.help);
    const nlohmann::ordered_json none = nlohmann::ordered_json::array();
    const nlohmann::ordered_json object = {{"severity", "error"}, {"code", nullptr}, {"title", nullptr}, {"message", error.message},
                                           {"span", nullptr},     {"labels", none},  {"notes", none},    {"help", helps}};
    return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  if (format == Diagnostics::Format::kShort) return printable("error: " + error.message) + "\n";
  const std::string head = color ? "\033[1;31merror\033[0m: " : "error: ";
  const std::string help = error.help.empty() ? "" : "  = help: " + printable(error.help) + "\n";
  return head + printable(error.message) + "\n" + help;
}

namespace {

// Edit distance with swaps of neighbours, abandoned above `limit`.
int edit_distance(std::string_view a, std::string_view b, int limit) {
  int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  if (std::abs(n - m) > limit) return limit + 1;
  std::vector<int> before(m + 1), previous(m + 1), current(m + 1);
  std::iota(previous.begin(), previous.end(), 0);
  for (int i = 1; i <= n; i++) {
    current[0] = i;
    for (int j = 1; j <= m; j++) {
      int substitute = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[m];
}

}  // namespace

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  // A third of the letters may be wrong, at least one, and never all of them.
  int limit = std::max(1, static_cast<int>(name.size()) / 3);
  std::string best;
  for (const std::string& candidate : candidates) {
    if (candidate == name) continue;
    int distance = edit_distance(name, candidate, limit);
    if (distance > limit || distance >= static_cast<int>(std::max(name.size(), candidate.size()))) continue;
    limit = distance - 1;
    best = candidate;
    if (limit < 0) break;
  }
  return best;
}

}  // namespace piper::support
