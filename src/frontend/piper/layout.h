// Text that knows where it may be broken: a small pretty printer in the manner of Wadler ("A prettier printer", 2003).
// A group is printed on one line when it fits, else each of its breaks becomes a line end.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace piper::frontend::layout {

struct Node;
using Doc = std::shared_ptr<const Node>;

Doc text(std::string text);
// A space, or a line end where its group is broken.
Doc line();
// Nothing, or a line end where its group is broken.
Doc soft_line();
// A line end; breaks all groups around it.
Doc hard_line();
// A comment that goes to the end of its line; breaks all groups around it.
Doc comment(std::string text);
Doc concat(std::vector<Doc> parts);
Doc group(Doc doc);
Doc nest(int columns, Doc doc);

// Prints with lines of at most `width` columns where that is possible; the first line starts at column `column`, and line
// ends indent by `indent` and what nest adds.
std::string print(const Doc& doc, int width, int indent, int column);

// Columns that UTF-8 text takes, one for each code point.
int columns_of(const std::string& text);

}  // namespace piper::frontend::layout
