// Messages for users. Everything wrong with an input is collected here and rendered at the end as rustc-like
// blocks: what is wrong at a span with a caret, further labels, notes, and `help` with the fix.
// Codes are rows of diagnostics.def; each has a page in explain/ and a golden test.
// Wording: lower case, no full stop, code in backticks, what was observed; the fix goes in help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/source.h"

namespace piper::support {

enum class Code {
#define PIPER_DIAGNOSTIC(code, severity, title) code,
#include "support/diagnostics.def"
#undef PIPER_DIAGNOSTIC
};

enum class Severity { kError, kWarning };

// "E0214"
std::string_view code_name(Code code);
// The short title of a code, one line.
std::string_view code_title(Code code);
Severity code_severity(Code code);

struct Label {
  SourceSpan span;
  std::string text;
};

struct Diagnostic {
  Code code;
  Severity severity = Severity::kError;
  std::string message;
  SourceSpan span;  // primary; may be invalid (a model file has no text)
  std::vector<Label> labels;
  std::vector<std::string> notes;
  std::vector<std::string> helps;

  Diagnostic& label(SourceSpan at, std::string text);
  Diagnostic& note(std::string text);
  Diagnostic& help(std::string text);
};

class Diagnostics {
 public:
  explicit Diagnostics(SourceMap& sources) : sources_(sources) {}

  // Adds a diagnostic; the reference is valid until the next one is added.
  Diagnostic& report(Code code, SourceSpan span, std::string message);
  Diagnostic& report(Code code, std::string message) { return report(code, SourceSpan{}, std::move(message)); }

  bool has_errors() const { return errors_ > 0; }
  int error_count() const { return errors_; }
  const std::vector<Diagnostic>& all() const { return all_; }
  SourceMap& sources() { return sources_; }
  const SourceMap& sources() const { return sources_; }

  enum class Format { kHuman, kShort, kJson };
  // All diagnostics as text in the order of their source positions; `color` for terminals.
  std::string render(Format format = Format::kHuman, bool color = false) const;

 private:
  SourceMap& sources_;
  std::vector<Diagnostic> all_;
  int errors_ = 0;
};

// The candidate closest to `name` by edit distance, or "" when none is near enough to be meant.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace piper::support
