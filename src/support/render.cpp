// Renders a diagnostic: header, location, source lines with carets under spans, notes and helps.
//
//   error[E0214]: unknown name `stge`
//     --> a.piper:3:11
//      |
//    3 | place all(stge = 0) on dev
//      |           ^^^^
//      |
//      = help: did you mean `stage`?
#include "support/render.h"

#include <algorithm>

namespace piper::support {

namespace {

struct CodePoint {
  uint32_t value;
  size_t bytes;  // 1 for an invalid byte, with value U+FFFD
};

CodePoint decode(std::string_view text, size_t at) {
  constexpr CodePoint kInvalid = {0xFFFD, 1};
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  size_t length = lead >= 0xF0 && lead < 0xF5 ? 4 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xC2 && lead < 0xE0 ? 2 : 0;
  if (length == 0 || at + length > text.size()) return kInvalid;
  uint32_t value = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    if ((byte(at + i) & 0xC0) != 0x80) return kInvalid;
    value = value << 6 | (byte(at + i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return kInvalid;
  return {value, length};
}

// Columns a code point takes in a terminal: 0 for combining marks, 2 for East Asian wide ones.
int columns_of(uint32_t c) {
  if ((c >= 0x0300 && c < 0x0370) || (c >= 0x200B && c < 0x2010) || (c >= 0xFE00 && c < 0xFE10)) return 0;
  if ((c >= 0x1100 && c < 0x1160) || (c >= 0x2E80 && c < 0xA4D0) || (c >= 0xAC00 && c < 0xD7A4) ||
      (c >= 0xF900 && c < 0xFB00) || (c >= 0xFE30 && c < 0xFE70) || (c >= 0xFF00 && c < 0xFF61) ||
      (c >= 0x1F300 && c < 0x1FB00) || (c >= 0x20000 && c < 0x40000)) {
    return 2;
  }
  return 1;
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// One source line as shown, with the terminal column of every byte offset.
struct ShownLine {
  std::vector<std::string> cells;  // one entry per code point
  std::vector<int> widths;
  std::vector<int> cell_of_byte;   // one more than there are bytes
};

ShownLine show(std::string_view line) {
  ShownLine shown;
  for (size_t at = 0; at < line.size();) {
    CodePoint c = decode(line, at);
    for (size_t i = 0; i < c.bytes; i++) shown.cell_of_byte.push_back(static_cast<int>(shown.cells.size()));
    if (c.value == '\t') {
      shown.cells.emplace_back("    ");
      shown.widths.push_back(4);
    } else if (c.value < 0x20 || (c.value >= 0x7F && c.value < 0xA0) || c.value == 0xFFFD) {
      shown.cells.emplace_back(kReplacement);
      shown.widths.push_back(1);
    } else {
      shown.cells.emplace_back(line.substr(at, c.bytes));
      shown.widths.push_back(columns_of(c.value));
    }
    at += c.bytes;
  }
  shown.cell_of_byte.push_back(static_cast<int>(shown.cells.size()));
  return shown;
}

struct Mark {
  int line = 0;
  int begin = 0, end = 0;  // bytes within the line
  bool primary = false;
  bool continues = false;  // the span goes on in later lines
  std::string text;
};

Mark mark_of(const SourceMap& sources, const SourceSpan& span, bool primary, std::string text) {
  Mark mark;
  mark.line = sources.locate(span.file, span.begin).line;
  std::string_view line = sources.line(span.file, mark.line);
  int start = static_cast<int>(line.data() - sources.text(span.file).data());
  int size = static_cast<int>(line.size());
  mark.begin = std::clamp(span.begin - start, 0, size);
  mark.end = std::clamp(span.end - start, mark.begin, size);
  mark.continues = span.end - start > size + 1;
  mark.primary = primary;
  mark.text = std::move(text);
  return mark;
}

class BlockWriter {
 public:
  BlockWriter(const SourceMap& sources, const Diagnostic& d, bool color) : sources_(sources), d_(d), color_(color) {}

  std::string run() {
    collect();
    const char* tone = d_.severity == Severity::kError ? "31" : "33";
    std::string head = d_.severity == Severity::kError ? "error" : "warning";
    out_ += paint(head + "[" + std::string(code_name(d_.code)) + "]", tone) + paint(": " + indented(d_.message, 0), "") + "\n";
    for (size_t i = 0; i < frames_.size(); i++) frame(frames_[i], i == 0);
    if (!frames_.empty() && (!d_.notes.empty() || !d_.helps.empty())) out_ += gutter("") + "\n";
    for (const std::string& note : d_.notes) trailer("note", note);
    for (const std::string& help : d_.helps) trailer("help", help);
    return out_;
  }

 private:
  struct Frame {
    SourceSpan first;
    std::vector<Mark> marks;
  };

  // Marks by file, the primary's file first; the primary's own text is a label at the same span.
  void collect() {
    auto add = [&](const SourceSpan& span, Mark mark) {
      widest_line_ = std::max(widest_line_, mark.line);
      for (Frame& frame : frames_) {
        if (frame.first.file == span.file) {
          frame.marks.push_back(std::move(mark));
          return;
        }
      }
      frames_.push_back({span, {std::move(mark)}});
    };
    std::string primary_text;
    for (const Label& label : d_.labels) {
      if (label.span.valid() && label.span == d_.span && primary_text.empty()) primary_text = label.text;
    }
    if (d_.span.valid()) add(d_.span, mark_of(sources_, d_.span, true, primary_text));
    bool used = primary_text.empty();
    for (const Label& label : d_.labels) {
      if (!label.span.valid()) continue;
      if (!used && label.span == d_.span) {
        used = true;
        continue;
      }
      add(label.span, mark_of(sources_, label.span, false, label.text));
    }
  }

  void frame(Frame& f, bool first) {
    std::string arrow(static_cast<size_t>(gutter_width()), ' ');
    out_ += arrow + paint(first ? "--> " : "::: ", "34") + printable(sources_.describe(f.first)) + "\n";
    out_ += gutter("") + "\n";
    std::stable_sort(f.marks.begin(), f.marks.end(), [](const Mark& a, const Mark& b) { return a.line < b.line; });
    int last = 0;
    for (size_t i = 0; i < f.marks.size();) {
      size_t j = i;
      while (j < f.marks.size() && f.marks[j].line == f.marks[i].line) j++;
      if (last > 0 && f.marks[i].line > last + 1) out_ += std::string(static_cast<size_t>(gutter_width()), '.') + "\n";
      last = f.marks[i].line;
      lines(f, i, j);
      i = j;
    }
  }

  // One source line and a row of carets for each of its marks.
  void lines(const Frame& f, size_t begin, size_t end) {
    const Mark& lead = f.marks[begin];
    ShownLine shown = show(sources_.line(f.first.file, lead.line));
    // A very long line is cut around what is marked.
    constexpr int kBefore = 60, kMost = 160;
    int cells = static_cast<int>(shown.cells.size());
    int from = 0, to = cells;
    if (cells > kMost) {
      from = std::clamp(shown.cell_of_byte[lead.begin] - kBefore, 0, cells - kMost);
      to = from + kMost;
    }
    std::string text = from > 0 ? "..." : "";
    for (int i = from; i < to; i++) text += shown.cells[i];
    if (to < cells) text += "...";
    out_ += gutter(std::to_string(lead.line)) + (text.empty() ? "" : " " + text) + "\n";
    for (size_t i = begin; i < end; i++) carets(f.marks[i], shown, from, to);
  }

  void carets(const Mark& mark, const ShownLine& shown, int from, int to) {
    int a = std::clamp(shown.cell_of_byte[mark.begin], from, to), b = std::clamp(shown.cell_of_byte[mark.end], a, to);
    int column = from > 0 ? 3 : 0, width = 0;
    for (int i = from; i < a; i++) column += shown.widths[i];
    for (int i = a; i < b; i++) width += shown.widths[i];
    std::string sign(static_cast<size_t>(std::max(width, 1)), mark.primary ? '^' : '-');
    if (mark.continues) sign += "...";
    const char* tone = !mark.primary ? "34" : d_.severity == Severity::kError ? "31" : "33";
    out_ += gutter("") + " " + std::string(static_cast<size_t>(column), ' ') +
            paint(sign + (mark.text.empty() ? "" : " " + printable(mark.text)), tone) + "\n";
  }

  void trailer(const char* kind, const std::string& text) {
    std::string lead(static_cast<size_t>(frames_.empty() ? 2 : gutter_width() + 1), ' ');
    size_t indent = lead.size() + 4 + std::string_view(kind).size();
    out_ += lead + paint("= ", "34") + paint(kind, "") + ": " + indented(text, indent) + "\n";
  }

  // Further lines of a text stand under its first.
  static std::string indented(const std::string& text, size_t indent) {
    std::string out;
    for (char c : printable(text)) {
      out += c;
      if (c == '\n') out += std::string(indent, ' ');
    }
    return out;
  }

  int gutter_width() const { return std::max<int>(2, static_cast<int>(std::to_string(widest_line_).size()) + 1); }

  std::string gutter(const std::string& number) const {
    std::string pad(static_cast<size_t>(gutter_width()) - number.size(), ' ');
    return paint(pad + number + " |", "34");
  }

  std::string paint(const std::string& text, const char* tone) const {
    if (!color_) return text;
    return std::string("\033[1") + (*tone ? ";" : "") + tone + "m" + text + "\033[0m";
  }

  const SourceMap& sources_;
  const Diagnostic& d_;
  bool color_;
  std::vector<Frame> frames_;
  int widest_line_ = 0;
  std::string out_;
};

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = decode(text, at);
    bool control = (c.value < 0x20 && c.value != '\n' && c.value != '\t') || (c.value >= 0x7F && c.value < 0xA0);
    if (control || c.value == 0xFFFD) {
      out += kReplacement;
    } else {
      out += text.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  return out;
}

std::string render_block(const SourceMap& sources, const Diagnostic& diagnostic, bool color) {
  return BlockWriter(sources, diagnostic, color).run();
}

}  // namespace piper::support
