#include "frontend/piper/syntax_help.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "frontend/piper/parse.h"
#include "support/strings.h"

namespace piper::frontend {

using support::Code;
using support::SourceSpan;

namespace {

struct Form {
  std::string_view keyword, form;
  std::vector<std::string> clauses;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> kForms = {
      {"assert", "assert CONDITION, \"why\"", {}},
      {"dim", "dim \"name in the model\" = SIZE", {}},
      {"fn", "fn NAME(PARAMETER, ...) = EXPRESSION", {}},
      {"for", "for NAME in LIST { ... }", {"in"}},
      {"freeze", "freeze param \"glob\"", {"param"}},
      {"if", "if CONDITION { ... } else { ... }", {"else"}},
      {"let", "let NAME = EXPRESSION", {}},
      {"mesh", "mesh NAME[AXIS = SIZE, ...]", {}},
      {"order", "order [F(stage = 0, mb = 0), ...]", {}},
      {"param", "param NAME = DEFAULT [\"description\"]", {}},
      {"place", "place all(...) on DEVICES [p2p_stream NAME]", {"on", "p2p_stream"}},
      {"recompute", "recompute all(...)", {}},
      {"replicate",
       "replicate all(...) over AXIS [zero N] [bucket SIZE] [reduce_stream NAME] [gather_stream NAME] "
       "[reduce_dtype f32 or bf16] [prefetch K]",
       {"over", "zero", "bucket", "reduce_stream", "gather_stream", "reduce_dtype", "prefetch"}},
      {"shard",
       "shard all(...) over AXIS as experts [a2a_stream NAME] [max_load F], or shard param \"glob\" dim D over AXIS",
       {"param", "dim", "over", "as", "experts", "a2a_stream", "max_load"}},
      {"split", "split all() into N as NAME", {"into", "as"}},
      {"stream", "stream NAME [priority high] [sms N]", {"priority", "sms"}},
      {"tag", "tag NAME = EXPRESSION [where PREDICATE]", {"where"}},
      {"tie", "tie \"initializer\" \"initializer\" [transposed]", {"transposed"}},
      {"train", "train { loss ... optimizer ... batch ... }", {}},
      {"treat", "treat \"glob\" as parameter, buffer or constant", {"as"}},
      {"use", "use NAME, or use \"dir/file.piper\" as NAME", {"as"}},
  };
  return kForms;
}

const Form* find_form(std::string_view keyword) {
  for (const Form& form : forms()) {
    if (form.keyword == keyword) return &form;
  }
  return nullptr;
}

}  // namespace

const std::vector<std::string>& statement_words() {
  static const std::vector<std::string> kWords = [] {
    std::vector<std::string> words;
    for (const Form& form : forms()) words.emplace_back(form.keyword);
    return words;
  }();
  return kWords;
}

std::vector<std::string> clause_words(std::string_view keyword) {
  const Form* form = find_form(keyword);
  return form ? form->clauses : std::vector<std::string>{};
}

const std::vector<std::string>& setting_words() {
  static const std::vector<std::string> kWords = {"batch",     "batch_norm", "clip_norm", "coupled_groups",
                                                  "init",      "loss",       "no_decay",  "on_nonfinite",
                                                  "optimizer", "precision",  "schedule",  "seed"};
  return kWords;
}

bool is_reserved(std::string_view word) {
  static const std::vector<std::string> kExpressionWords = {"and", "or", "not", "in", "then", "else", "true",
                                                            "false", "all", "F", "B", "I", "W", "U"};
  return std::find(kExpressionWords.begin(), kExpressionWords.end(), word) != kExpressionWords.end() ||
         find_form(word) != nullptr;
}

std::string_view statement_form(std::string_view keyword) {
  const Form* form = find_form(keyword);
  return form ? form->form : std::string_view{};
}

namespace {

// Offset of the first byte that is not UTF-8, or npos.
size_t first_invalid(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
    unsigned char lead = byte(i);
    if (lead < 0x80) {
      i++;
      continue;
    }
    size_t length = lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return i;
    for (size_t k = 1; k < length; k++) {
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    }
    unsigned char second = byte(i + 1);
    bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    bool outside = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
    if (overlong || outside) return i;
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace

std::optional<int32_t> read_text(const std::string& path, SourceSpan span, support::Diagnostics& diagnostics) {
  std::error_code failed;
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path, failed)) {
    diagnostics.report(Code::E0001, span, "cannot read `" + path + "`");
    return std::nullopt;
  }
  // One byte more than is allowed: the size check then says so without reading all of a huge file.
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return diagnostics.sources().add(path, std::move(text));
}

bool check_text(int32_t file, support::Diagnostics& diagnostics) {
  const std::string& text = diagnostics.sources().text(file);
  if (text.size() > kMaxFileBytes) {
    diagnostics
        .report(Code::E0003, "`" + diagnostics.sources().name(file) + "` has " +
                                 support::human_bytes(static_cast<int64_t>(text.size())) + ", a strategy file at most " +
                                 support::human_bytes(kMaxFileBytes))
        .help("schedules are written as functions, not listed; is this a strategy file?");
    return false;
  }
  size_t invalid = first_invalid(text);
  if (invalid != std::string_view::npos) {
    int32_t at = static_cast<int32_t>(invalid);
    diagnostics.report(Code::E0002, SourceSpan{file, at, at + 1}, "this byte is not UTF-8")
        .help("save the file as UTF-8");
    return false;
  }
  return true;
}

}  // namespace piper::frontend
