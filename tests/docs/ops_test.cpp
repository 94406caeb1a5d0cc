// The tables of docs/ops.md are those of the compiler. With PIPER_UPDATE_GOLDEN=1 they are written again; the last column,
// notes, is kept from the page.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ops/composed.h"
#include "ops/op.h"
#include "ops/recurrent.h"
#include "tests/docs/blocks.h"

using namespace piper;
using ops::ImportRule;
using ops::OpDef;

namespace {

constexpr const char* kPage = "docs/ops.md";
using Lines = std::vector<std::string>;

Lines read_lines(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return docs::lines_of(text.str());
}

std::vector<std::string> cells(const std::string& row) {
  std::vector<std::string> out(1);
  for (size_t i = 1; i < row.size(); i++) {
    if (row[i] == '|' && row[i - 1] != '\\') {
      out.emplace_back();
    } else {
      out.back() += row[i];
    }
  }
  for (std::string& cell : out) {
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
  }
  return out;
}

// The notes of the page, by the first cell of their row.
std::map<std::string, std::string> notes_of(const Lines& page) {
  std::map<std::string, std::string> notes;
  for (const std::string& line : page) {
    if (line.rfind("| `", 0) != 0) continue;
    const auto row = cells(line);
    if (row.size() > 2) notes[row[0]] = row[row.size() - 2];
  }
  return notes;
}

std::string escaped(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string range(const ImportRule& rule) {
  if (rule.max_opset == INT_MAX) return fmt::format("{} on", rule.min_opset);
  return rule.min_opset == rule.max_opset ? std::to_string(rule.min_opset) : fmt::format("{} to {}", rule.min_opset, rule.max_opset);
}

struct Entry {
  std::string opsets, as, gradient;
};

// By the operator's name, with its domain.
std::map<std::string, Entry> operators() {
  std::map<std::string, Entry> entries;
  const auto add = [&](const ImportRule& rule, const std::string& as, const std::string& gradient) {
    const std::string name = std::string(rule.domain).empty() ? rule.op_type : fmt::format("{}.{}", rule.domain, rule.op_type);
    const auto [it, fresh] = entries.emplace(name, Entry{range(rule), as, gradient});
    if (!fresh) it->second.opsets += ", " + range(rule);
  };
  for (const OpDef* def : ops::all_ops()) {
    for (const ImportRule& rule : def->imports) {
      const bool same = std::string(rule.op_type) == def->name;
      add(rule, same ? fmt::format("`{}`", def->name) : "others", def->gradient ? "yes" : "no");
    }
  }
  const std::set<std::string> no_number = {"OneHot", "Sign", "Xor"};
  for (const ImportRule& rule : ops::composed_rules()) add(rule, "others", no_number.count(rule.op_type) ? "no" : "yes");
  for (const ImportRule& rule : ops::recurrent_rules()) add(rule, "others", "yes");
  return entries;
}

Lines operator_table(const std::map<std::string, std::string>& notes) {
  Lines lines = {"| operator | opsets | as | gradient | CPU | CUDA | notes |", "|---|---|---|---|---|---|---|"};
  for (const auto& [name, entry] : operators()) {
    const std::string key = fmt::format("`{}`", name);
    const auto note = notes.find(key);
    const std::string last = note == notes.end() ? "" : note->second;
    lines.push_back(fmt::format("| {} | {} | {} | {} | yes | no |{} |", key, entry.opsets, entry.as, entry.gradient, last.empty() ? "" : " " + last));
  }
  return lines;
}

// "PIPER_OP(Name, folder)  // form": the form of each, from the table itself; one without is as the row before it.
std::map<std::string, std::string> forms() {
  std::map<std::string, std::string> forms;
  std::string last;
  for (const std::string& line : read_lines("src/ops/ops.def")) {
    if (line.rfind("PIPER_OP(", 0) != 0) continue;
    const std::string name = line.substr(9, line.find(',') - 9);
    const size_t comment = line.find("// ");
    if (comment != std::string::npos) last = line.substr(comment + 3);
    forms[name] = last;
  }
  return forms;
}

Lines operation_table() {
  Lines lines = {"| operation | form | gradient |", "|---|---|---|"};
  const auto all = forms();
  std::map<std::string, const OpDef*> sorted;
  for (const OpDef* def : ops::all_ops()) sorted[def->name] = def;
  for (const auto& [name, def] : sorted) {
    const std::string why = def->why_no_gradient ? def->why_no_gradient : "none";
    lines.push_back(fmt::format("| {} | {} | {} |", name, escaped(all.at(name)), def->gradient ? "yes" : "no: " + why));
  }
  return lines;
}

// The page with the text between the marks replaced.
Lines generated(const Lines& page) {
  Lines out;
  bool inside = false;
  for (const std::string& line : page) {
    if (line == "<!-- end -->") {
      inside = false;
      out.push_back("");
    }
    if (!inside) out.push_back(line);
    if (line.rfind("<!-- generated: ", 0) != 0) continue;
    inside = true;
    out.push_back("");
    const Lines table = line.find("operators") != std::string::npos ? operator_table(notes_of(page)) : operation_table();
    out.insert(out.end(), table.begin(), table.end());
  }
  return out;
}

}  // namespace

TEST_CASE("the page of operators is what the compiler knows", "[docs]") {
  const Lines page = read_lines(kPage);
  const Lines right = generated(page);
  if (std::getenv("PIPER_UPDATE_GOLDEN") != nullptr && page != right) {
    std::ofstream out(kPage, std::ios::binary);
    for (const std::string& line : right) out << line << "\n";
    return;
  }
  for (size_t i = 0; i < std::max(page.size(), right.size()); i++) {
    const std::string is = i < page.size() ? page[i] : "(end)", should = i < right.size() ? right[i] : "(end)";
    INFO("line " << i + 1 << "; PIPER_UPDATE_GOLDEN=1 docs_test writes the page again");
    REQUIRE(is == should);
  }
  CHECK(operators().size() == ops::importable_ops().size());
}
