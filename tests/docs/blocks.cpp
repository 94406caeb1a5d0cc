#include "tests/docs/blocks.h"

#include <regex>
#include <sstream>

namespace piper::docs {

namespace {

// "run", "model: x" of "<!-- run -->"; "" for other lines.
std::string mark_of(const std::string& line) {
  const std::string open = "<!-- ", close = " -->";
  if (line.rfind(open, 0) != 0 || line.size() < open.size() + close.size()) return "";
  if (line.compare(line.size() - close.size(), close.size(), close) != 0) return "";
  return line.substr(open.size(), line.size() - open.size() - close.size());
}

bool take(const std::string& mark, const std::string& key, std::string& value) {
  if (mark.rfind(key + ": ", 0) != 0) return false;
  value = mark.substr(key.size() + 2);
  return true;
}

void apply(const std::string& mark, Block& block) {
  std::string setup;
  if (mark == "run")
    block.run = true;
  else if (take(mark, "setup", setup))
    block.setup.push_back(setup);
  else if (!take(mark, "model", block.model) && !take(mark, "file", block.file) &&
           !take(mark, "not run", block.not_run) && !take(mark, "output of", block.output_of))
    block.unknown_marks.push_back(mark);
}

// Fits `text` the pattern, in which `…` is any text?
bool line_matches(const std::string& pattern, const std::string& text) {
  static const std::string kAny = "…";
  const size_t at = pattern.find(kAny);
  if (at == std::string::npos) return pattern == text;
  if (text.compare(0, at, pattern, 0, at) != 0) return false;
  const std::string rest = pattern.substr(at + kAny.size());
  for (size_t i = at; i <= text.size(); i++) {
    if (line_matches(rest, text.substr(i))) return true;
  }
  return false;
}

// Times differ from run to run.
std::string without_times(const std::string& line) {
  static const std::regex kTime(R"(\d+(\.\d+)?( m?s\b))");
  return std::regex_replace(line, kTime, "#$2");
}

bool matches_from(const std::vector<std::string>& shown, size_t s, const std::vector<std::string>& output, size_t o) {
  if (s == shown.size()) return o == output.size();
  if (shown[s] == "…") {
    for (size_t next = o; next <= output.size(); next++) {
      if (matches_from(shown, s + 1, output, next)) return true;
    }
    return false;
  }
  return o < output.size() && line_matches(without_times(shown[s]), without_times(output[o])) &&
         matches_from(shown, s + 1, output, o + 1);
}

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Block> blocks_of(const std::string& page, const std::string& text) {
  std::vector<Block> blocks;
  std::vector<std::string> marks;
  const std::vector<std::string> lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); i++) {
    if (const std::string mark = mark_of(lines[i]); !mark.empty()) {
      marks.push_back(mark);
      continue;
    }
    if (lines[i].rfind("```", 0) == 0) {
      Block block;
      block.page = page;
      block.line = static_cast<int>(i) + 1;
      block.language = lines[i].substr(3);
      for (const std::string& mark : marks) apply(mark, block);
      for (i++; i < lines.size() && lines[i] != "```"; i++) block.text.push_back(lines[i]);
      blocks.push_back(std::move(block));
    }
    marks.clear();
  }
  return blocks;
}

std::vector<Command> commands_of(const Block& block) {
  if (!block.output_of.empty()) return {{block.output_of, block.text}};
  std::vector<Command> commands;
  bool goes_on = false;
  for (const std::string& line : block.text) {
    if (goes_on) {
      commands.back().line += "\n" + line;
    } else if (line.rfind("$ ", 0) == 0) {
      commands.push_back({line.substr(2), {}});
    } else if (!commands.empty()) {
      commands.back().output.push_back(line);
      continue;
    }
    goes_on = !line.empty() && line.back() == '\\';
  }
  return commands;
}

bool matches(const std::vector<std::string>& shown, const std::vector<std::string>& output) {
  return matches_from(shown, 0, output, 0);
}

}  // namespace piper::docs
