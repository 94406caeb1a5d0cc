# Writes a .cpp with every page of FOLDER as a string, found by the name of its code. Run by cmake -P.
file(GLOB pages ${FOLDER}/*.md)
list(SORT pages)
set(rows "")
foreach(page IN LISTS pages)
  get_filename_component(code ${page} NAME_WE)
  file(READ ${page} text)
  string(APPEND rows "    {\"${code}\", R\"PIPER_PAGE(${text})PIPER_PAGE\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from explain/*.md.
#include \"support/explain.h\"

#include <utility>

namespace piper::support {

namespace {

constexpr std::pair<std::string_view, std::string_view> kPages[] = {
    {\"\", \"\"},
${rows}};

constexpr std::string_view kCodes[] = {
#define PIPER_DIAGNOSTIC(code, severity, title) #code,
#include \"support/diagnostics.def\"
#undef PIPER_DIAGNOSTIC
};

}  // namespace

std::string_view explain_page(Code code) {
  for (const auto& [name, text] : kPages) {
    if (name == code_name(code)) return text;
  }
  return {};
}

std::optional<Code> parse_code(std::string_view name) {
  for (size_t i = 0; i < std::size(kCodes); i++) {
    std::string_view known = kCodes[i];
    bool equal = name.size() == known.size();
    for (size_t j = 0; equal && j < name.size(); j++) {
      equal = name[j] == known[j] || (j == 0 && name[j] == known[j] + ('a' - 'A'));
    }
    if (equal) return static_cast<Code>(i);
  }
  return std::nullopt;
}

}  // namespace piper::support
")
