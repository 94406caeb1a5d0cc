#include "inspect/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspect/module_tree.h"
#include "support/strings.h"

namespace piper::inspect {

using ir::Op;
using ir::ValueId;

namespace {

// "layers.", 3 and ".mlp" of "layers.3.mlp"; no number: the whole path in front.
struct Numbered {
  std::string before, after;
  int64_t number = -1;
  friend bool operator==(const Numbered& a, const Numbered& b) {
    return a.before == b.before && a.after == b.after && (a.number < 0) == (b.number < 0);
  }
};

Numbered numbered(const std::string& path) {
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool digits = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    if (digits) return {path.substr(0, at), path.substr(end), std::stol(part)};
    at = end + 1;
  }
  return {path, "", -1};
}

// Without what the path of the experts says already.
std::string short_name(const std::string& parameter, const std::string& path) {
  return parameter.starts_with(path + ".") ? parameter.substr(path.size() + 1) : parameter;
}

std::string describe(const Experts& e) {
  std::vector<std::string> names;
  for (const std::string& parameter : e.parameters) names.push_back(short_name(parameter, e.path));
  std::string text = fmt::format("{}, {} a token", e.experts, e.choices);
  if (e.capacity > 0) text += fmt::format(", each takes {} of {} tokens", e.capacity, e.group);
  return text + (names.empty() ? "" : "; " + support::join(names, ", "));
}

}  // namespace

std::vector<Experts> experts_of(const ir::Model& model) {
  std::vector<Experts> found;
  for (const Op& route : model.ops) {
    if (route.kind != "MoERoute") continue;
    const ir::Shape& pairs = model.value(route.inputs[0]).type.shape;
    Experts e;
    e.path = route.path;
    e.experts = route.attrs.i("experts");
    e.choices = pairs.back().constant;
    e.capacity = route.attrs.i("capacity");
    e.group = ir::to_string(pairs[pairs.size() - 2]);
    for (const Op& op : model.ops) {
      const bool reads = std::find(op.inputs.begin(), op.inputs.end(), route.outputs[1]) != op.inputs.end();
      for (ValueId v : op.inputs) {
        if (reads && v.valid() && model.value(v).param.valid())
          e.parameters.push_back(model.params[model.value(v).param.index()].name);
      }
      // A route of single pairs is one of tokens where they come together.
      const bool combines = op.kind == "MoECombine" && model.value(op.inputs[1]).type.shape.back() != pairs.back();
      if (!combines) continue;
      const ir::Value& slot = model.value(op.inputs[1]);
      const bool same = slot.producer.valid() && model.op(slot.producer).kind == "Reshape" &&
                        model.op(slot.producer).inputs[0] == route.outputs[0];
      if (same) e.choices = slot.type.shape.back().constant;
    }
    found.push_back(std::move(e));
  }
  return found;
}

std::string experts_text(const ir::Model& model) {
  struct Line {
    Numbered path;
    std::vector<int64_t> numbers;
    std::string text;
  };
  std::vector<Line> lines;
  for (const Experts& e : experts_of(model)) {
    const Numbered path = numbered(e.path);
    const std::string text = describe(e);
    const auto same =
        std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.path == path && l.text == text; });
    if (same == lines.end())
      lines.push_back({path, {path.number}, text});
    else
      same->numbers.push_back(path.number);
  }
  std::string out;
  for (const Line& line : lines) {
    const std::string number = line.path.number < 0       ? ""
                               : line.numbers.size() == 1 ? std::to_string(line.numbers[0])
                                                          : "{" + number_ranges(line.numbers) + "}";
    out += fmt::format("experts {}{}{}: {}\n", line.path.before, number, line.path.after, line.text);
  }
  return out;
}

}  // namespace piper::inspect
