#include "frontend/piper/layout.h"

#include <algorithm>

namespace piper::frontend::layout {

enum class Kind { kText, kLine, kSoftLine, kHardLine, kComment, kConcat, kGroup, kNest };

struct Node {
  Kind kind;
  std::string text;
  std::vector<Doc> parts;
  int columns = 0;
  bool hard = false;  // has a line end that cannot be avoided
};

namespace {

Doc make(Kind kind, std::string text, std::vector<Doc> parts, int columns, bool hard) {
  for (const Doc& part : parts) hard = hard || part->hard;
  return std::make_shared<const Node>(Node{kind, std::move(text), std::move(parts), columns, hard});
}

struct Command {
  int indent;
  bool broken;
  const Node* node;
};

class Printer {
 public:
  Printer(int width, int column) : width_(width), column_(column) {}

  std::string run(const Doc& doc, int indent) {
    std::vector<Command> commands{{indent, true, doc.get()}};
    while (!commands.empty()) {
      const Command c = commands.back();
      commands.pop_back();
      switch (c.node->kind) {
        case Kind::kText: put(c.node->text); break;
        case Kind::kComment: comment_ += (comment_.empty() ? "  " : " ") + c.node->text; break;
        case Kind::kHardLine: end_line(c.indent); break;
        case Kind::kLine:
        case Kind::kSoftLine:
          if (c.broken) end_line(c.indent);
          else if (c.node->kind == Kind::kLine) put(" ");
          break;
        case Kind::kNest: commands.push_back({c.indent + c.node->columns, c.broken, c.node->parts[0].get()}); break;
        case Kind::kGroup: {
          const bool broken = c.node->hard || !fits(commands, {c.indent, false, c.node->parts[0].get()});
          commands.push_back({c.indent, broken, c.node->parts[0].get()});
          break;
        }
        case Kind::kConcat:
          for (size_t i = c.node->parts.size(); i-- > 0;) commands.push_back({c.indent, c.broken, c.node->parts[i].get()});
          break;
      }
    }
    out_ += comment_;
    return std::move(out_);
  }

 private:
  void put(const std::string& text) {
    out_ += text;
    column_ += columns_of(text);
  }
  void end_line(int indent) {
    while (!out_.empty() && out_.back() == ' ') out_.pop_back();
    out_ += comment_ + "\n" + std::string(static_cast<size_t>(indent), ' ');
    comment_.clear();
    column_ = indent;
  }

  // Whether `next`, unbroken, and what follows up to the next line end fit on this line.
  bool fits(const std::vector<Command>& rest, Command next) const {
    int left = width_ - column_;
    std::vector<Command> work{next};
    size_t behind = rest.size();
    while (left >= 0) {
      if (work.empty()) {
        if (behind == 0) return true;
        work.push_back(rest[--behind]);
      }
      const Command c = work.back();
      work.pop_back();
      switch (c.node->kind) {
        case Kind::kText: left -= columns_of(c.node->text); break;
        case Kind::kComment: break;
        case Kind::kHardLine: return true;
        case Kind::kLine:
        case Kind::kSoftLine:
          if (c.broken) return true;
          left -= c.node->kind == Kind::kLine ? 1 : 0;
          break;
        case Kind::kNest:
        case Kind::kGroup: work.push_back({c.indent, c.broken && c.node->kind == Kind::kNest, c.node->parts[0].get()}); break;
        case Kind::kConcat:
          for (size_t i = c.node->parts.size(); i-- > 0;) work.push_back({c.indent, c.broken, c.node->parts[i].get()});
          break;
      }
    }
    return false;
  }

  int width_, column_;
  std::string out_, comment_;
};

}  // namespace

Doc text(std::string t) { return make(Kind::kText, std::move(t), {}, 0, false); }
Doc line() { return make(Kind::kLine, "", {}, 0, false); }
Doc soft_line() { return make(Kind::kSoftLine, "", {}, 0, false); }
Doc hard_line() { return make(Kind::kHardLine, "", {}, 0, true); }
Doc comment(std::string t) { return make(Kind::kComment, std::move(t), {}, 0, true); }
Doc concat(std::vector<Doc> parts) { return make(Kind::kConcat, "", std::move(parts), 0, false); }
Doc group(Doc doc) { return make(Kind::kGroup, "", {std::move(doc)}, 0, false); }
Doc nest(int columns, Doc doc) { return make(Kind::kNest, "", {std::move(doc)}, columns, false); }

std::string print(const Doc& doc, int width, int indent, int column) { return Printer(width, column).run(doc, indent); }

int columns_of(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace piper::frontend::layout
