// Who may include whom: ARCHITECTURE.md, "The house", as a table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "tests/tidy/checks.h"

namespace piper::tidy {

namespace {

struct Room {
  std::string name;                  // folder below src/
  std::vector<std::string> may_use;  // folders (with `/` at the end) and single files below src/
};

const std::vector<Room>& rooms() {
  static const std::vector<Room> kRooms = {
      {"support", {}},
      {"ir", {"support/"}},
      {"plan", {"ir/attributes.h", "ir/types.h", "support/"}},
      {"ops", {"ir/", "support/"}},
      {"frontend/piper", {"ir/", "support/"}},
      {"frontend/onnx", {"ops/", "ir/", "support/"}},
      {"passes", {"ops/", "ir/", "support/"}},
      {"inspect", {"passes/", "ops/", "frontend/onnx/", "ir/", "support/"}},
      {"codegen", {"passes/", "ops/", "plan/", "ir/", "support/"}},
      {"verify", {"plan/", "ir/attributes.h", "ir/types.h", "support/"}},
      {"runtime",
       {"plan/", "ops/kernel.h", "ops/update.h", "ir/attributes.h", "ir/types.h", "support/",
        "frontend/onnx/initializer_reader.h"}},
      {"cli", {"codegen/", "frontend/", "inspect/", "ir/", "ops/", "passes/", "plan/", "runtime/", "support/", "verify/"}},
  };
  return kRooms;
}

const Room* room_of(std::string_view path_below_src) {
  for (const Room& room : rooms()) {
    if (path_below_src.starts_with(room.name + "/")) return &room;
  }
  return nullptr;
}

// "plan/plan.h" of `#include "plan/plan.h"`, "gloo/context.h" of `#include <gloo/context.h>`.
std::optional<std::string_view> included(std::string_view line) {
  constexpr std::string_view kInclude = "#include ";
  if (!line.starts_with(kInclude) || line.size() < kInclude.size() + 2) return std::nullopt;
  line.remove_prefix(kInclude.size());
  const size_t end = line.find_first_of("\">", 1);
  if ((line[0] != '"' && line[0] != '<') || end == std::string_view::npos) return std::nullopt;
  return line.substr(1, end - 1);
}

bool may_include(const Room& room, std::string_view file) {
  if (file.starts_with(room.name + "/")) return true;
  return std::any_of(room.may_use.begin(), room.may_use.end(),
                     [&](const std::string& use) { return use.back() == '/' ? file.starts_with(use) : file == use; });
}

struct Library {
  const char* name;
  std::vector<std::string> headers;  // how their includes begin
  std::vector<std::string> folders;  // below src/, and of equal name below tests/
};

const std::vector<Library>& libraries() {
  static const std::vector<Library> kLibraries = {
      {"ANTLR", {"antlr4", "PiperLexer.h", "PiperParser.h"}, {"frontend/piper/"}},
      {"ONNX", {"onnx/"}, {"frontend/onnx/"}},
      {"protobuf", {"google/protobuf"}, {"frontend/onnx/", "plan/"}},
      {"the plan's protobuf schema", {"plan.pb.h"}, {"plan/"}},
      {"oneDNN", {"dnnl", "oneapi/"}, {"ops/"}},
      {"Highway", {"hwy/"}, {"ops/"}},
      {"Gloo", {"gloo/"}, {"runtime/"}},
      {"CLI11", {"CLI/"}, {"cli/"}},
  };
  return kLibraries;
}

bool is_at_home(const Library& library, std::string_view path) {
  return std::any_of(library.folders.begin(), library.folders.end(), [&](const std::string& folder) {
    return path.starts_with("src/" + folder) || path.starts_with("tests/" + folder);
  });
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// The first word of `line`, in lower case, that only makes sense to somebody who knows the strategy.
std::optional<std::string> strategy_word(const std::string& line) {
  constexpr std::array kAnywhere = {"1f1b",      "bubble",   "data_parallel", "data parallel", "dualpipe", "expert",
                                    "interleav", "pipeline", "replica",       "shard",         "zero_bubble"};
  constexpr std::array kWhole = {"bfs", "dp", "gpipe", "pp", "zero1", "zero2", "zero3"};
  for (const char* word : kAnywhere) {
    if (line.find(word) != std::string::npos) return word;
  }
  for (const char* word : kWhole) {
    if (has_word(line, word)) return word;
  }
  // Fields of the plan have these two names; anything that is built around them would be knowledge of the schedule.
  for (size_t i = line.find("microbatch"); i != std::string::npos; i = line.find("microbatch", i + 1)) {
    size_t begin = i, end = i;
    while (begin > 0 && is_word_char(line[begin - 1])) begin--;
    while (end < line.size() && is_word_char(line[end])) end++;
    const std::string word = line.substr(begin, end - begin);
    if (word != "microbatch" && word != "microbatches") return word;
  }
  return std::nullopt;
}

}  // namespace

Violations check_include_direction(const Tree& tree) {
  Violations found;
  for (const std::string& path : tree.list("src/", {".cpp", ".h", ".cu"})) {
    const std::string_view below_src = std::string_view(path).substr(4);
    const Room* room = room_of(below_src);
    if (room == nullptr) {
      found.push_back(path + ": its folder is no room of the table in tests/tidy/include_checks.cpp");
      continue;
    }
    for (const Line& line : lines_of(tree.text(path))) {
      const auto file = included(line.text);
      // Other headers belong to libraries: check_library_borders.
      if (!file || room_of(*file) == nullptr || may_include(*room, *file)) continue;
      found.push_back(fmt::format("{}: `{}` may not include `{}`", at(path, line), room->name, *file));
    }
  }
  return found;
}

Violations check_library_borders(const Tree& tree) {
  Violations found;
  for (const char* top : {"src/", "tests/"}) {
    for (const std::string& path : tree.list(top, {".cpp", ".h", ".cu"})) {
      for (const Line& line : lines_of(tree.text(path))) {
        const auto file = included(line.text);
        if (!file) continue;
        for (const Library& library : libraries()) {
          const bool its = std::any_of(library.headers.begin(), library.headers.end(),
                                       [&](const std::string& header) { return file->starts_with(header); });
          if (!its || is_at_home(library, path)) continue;
          found.push_back(fmt::format("{}: `{}` is a header of {}, which stays in src/{}", at(path, line), *file, library.name,
                                      fmt::join(library.folders, " and src/")));
        }
      }
    }
  }
  return found;
}

Violations check_strategy_words(const Tree& tree) {
  Violations found;
  const std::vector<std::string> paths = tree.list("src/runtime/", {".cpp", ".h", ".cu"});
  if (paths.empty()) found.emplace_back("src/runtime: there are no sources");
  for (const std::string& path : paths) {
    for (const Line& line : lines_of(tree.text(path))) {
      if (const auto word = strategy_word(lower(line.text))) {
        found.push_back(fmt::format("{}: `{}` is a word of strategies, which the runtime does not know", at(path, line), *word));
      }
    }
  }
  return found;
}

}  // namespace piper::tidy
