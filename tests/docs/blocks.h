// The fenced blocks of a page of documentation, with the marks before each.
//
//   <!-- run -->                       commands: run in a folder of the page's own, with `piper`, models/ and
//   strategies/
//   <!-- output of: piper ... -->      the block is the output of this command
//   <!-- setup: cp a b -->             a command that is run before the block's own
//   <!-- model: models/a/a.onnx -->    a strategy: compiled against this model
//   <!-- file: two.piper -->           a file that later blocks of the page use
//   <!-- not run: why -->              neither
//
// Marks are HTML comments on lines of their own, directly before the block. In the output that a `console` block shows,
// `…` stands for any text in a line, and a line that is `…` for any lines; times ("0.12 s") may differ.
#pragma once

#include <string>
#include <vector>

namespace piper::docs {

struct Block {
  std::string page;      // path of the file
  int line = 0;          // of the opening fence, from 1
  std::string language;  // what follows the fence
  std::vector<std::string> text;
  bool run = false;
  std::string model, file, not_run, output_of;
  std::vector<std::string> setup;
  std::vector<std::string> unknown_marks;
  std::string where() const { return page + ":" + std::to_string(line); }
};

std::vector<Block> blocks_of(const std::string& page, const std::string& text);

// A command of a console block with the output that the page shows.
struct Command {
  std::string line;
  std::vector<std::string> output;
};
std::vector<Command> commands_of(const Block& block);

// Whether an output is what the page shows.
bool matches(const std::vector<std::string>& shown, const std::vector<std::string>& output);

// Runs a block's commands in `folder`; "" or what is wrong. `actual` gets the block's text with the real output.
std::string run_block(const Block& block, const std::string& folder, std::vector<std::string>* actual);

std::vector<std::string> lines_of(const std::string& text);

}  // namespace piper::docs
