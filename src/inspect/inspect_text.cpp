#include "inspect/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "inspect/experts.h"
#include "inspect/layers.h"
#include "inspect/module_tree.h"
#include "inspect/saved.h"
#include "support/strings.h"

namespace piper::inspect {

using ir::Model;
using ir::Op;
using ir::ValueId;

namespace {

// A row of the tree: modules of equal structure summed up.
struct Sum {
  int64_t count = 0, ops = 0, saved = 0;
  double flops = 0;
  std::set<int32_t> params;
  std::string output;

  explicit Sum(const std::vector<const Module*>& modules) {
    for (const Module* m : modules) {
      count++;
      ops += m->ops;
      saved += m->saved_bytes;
      flops += m->flops;
      params.insert(m->params.begin(), m->params.end());
      output = m->output;
    }
  }
};

class Tree {
 public:
  Tree(const Inspection& inspection, const InspectOptions& options, const Module& root)
      : in_(inspection),
        options_(options),
        root_(root),
        table_({{"module", false, 9},
                {"count", true, 7},
                {"operations", true, 1},
                {"parameters", true, 8},
                {"bytes", true, 3},
                {per("FLOPs", options), true, 6},
                {"share", true, 5},
                {per("saved", options), true, 4},
                {"output", false, 2}}) {}

  std::string text() {
    add({{&root_}, root_.name}, 0, 0, options_.path.empty(), "");
    if (options_.depth < 0 && options_.path.empty() && rows_.size() > kMostRows) cut();
    for (auto& [depth, cells] : rows_) table_.add(std::move(cells));
    if (table_.empty()) return fmt::format("no module matches `{}`\n", options_.path);
    return table_.text(options_.style) + hint_;
  }

 private:
  static std::string per(const std::string& what, const InspectOptions& options) {
    return what + (options.batch > 0 ? fmt::format("/{} samples", options.batch) : "/sample");
  }

  static constexpr size_t kMostRows = 60;  // of a tree that fits on a screen or two

  // Leaves out the deepest modules until the rest can be read, but never the first level.
  void cut() {
    auto rows_to = [&](int depth) {
      return std::count_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row.first <= depth; });
    };
    int depth = 0;
    for (const auto& row : rows_) depth = std::max(depth, row.first);
    const int all = depth;
    while (depth > 1 && rows_to(depth) > static_cast<std::ptrdiff_t>(kMostRows)) depth--;
    if (depth == all) return;
    std::erase_if(rows_, [&](const auto& row) { return row.first > depth; });
    hint_ = fmt::format("the first {} of {} levels; --depth {} shows all, --path GLOB a part\n", depth, all, all);
  }

  // `level` in the model, `depth` of the row; `wanted`: the glob has matched a module around these; `above`: labels of
  // the modules around.
  void add(Group group, int level, int depth, bool wanted, const std::string& above) {
    if (options_.depth >= 0 && level > options_.depth) return;
    const std::string path = level == 0 ? "" : above.empty() ? group.label : above + "." + group.label;
    if (!wanted) {
      wanted = std::any_of(group.modules.begin(), group.modules.end(), [&](const Module* m) {
        return support::match_path_glob(options_.path, m->path).has_value();
      });
      if (wanted && level > 0) group.label = path;
    }
    if (wanted) row(group, depth);
    for (const Group& below : children(group)) add(below, level + 1, wanted ? depth + 1 : 0, wanted, path);
  }

  // The children of modules of equal structure, those at the same place together.
  static std::vector<Group> children(const Group& group) {
    std::vector<Group> out = grouped_children(*group.modules[0]);
    for (size_t m = 1; m < group.modules.size(); m++) {
      const std::vector<Group> more = grouped_children(*group.modules[m]);
      for (size_t g = 0; g < out.size(); g++)
        out[g].modules.insert(out[g].modules.end(), more[g].modules.begin(), more[g].modules.end());
    }
    return out;
  }

  void row(const Group& group, int depth) {
    const Sum sum(group.modules);
    const int64_t samples = std::max<int64_t>(options_.batch, 1);
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    std::vector<std::string> cells{indent + group.label, sum.count > 1 ? fmt::format("x {}", sum.count) : "",
                                   std::to_string(sum.ops), std::to_string(param_elements(*in_.model, sum.params)),
                                   support::human_bytes(param_bytes(*in_.model, sum.params))};
    if (in_.typed) {
      cells.push_back(human_flops(sum.flops * static_cast<double>(samples)));
      cells.push_back(root_.flops > 0 ? fmt::format("{:.1f}%", 100 * sum.flops / root_.flops) : "");
    } else {
      cells.insert(cells.end(), 2, "");
    }
    cells.push_back(in_.saved.empty() ? "" : support::human_bytes(sum.saved * samples));
    cells.push_back(sum.output);
    rows_.emplace_back(depth, std::move(cells));
  }

  const Inspection& in_;
  const InspectOptions& options_;
  const Module& root_;
  std::vector<std::pair<int, std::vector<std::string>>> rows_;  // with their levels
  Table table_;
  std::string hint_;
};

std::string_view kind_name(ir::WeightKind kind) {
  switch (kind) {
    case ir::WeightKind::kParameter:
      return "parameter";
    case ir::WeightKind::kBuffer:
      return "buffer";
    case ir::WeightKind::kConstant:
      return "constant";
  }
  return "";
}

std::string weights_table(const Inspection& in, const Style& style) {
  std::map<std::string, int> uses;
  for (const Op& op : in.model->ops) {
    for (ValueId v : op.inputs) {
      if (v.valid() && in.model->value(v).param.valid())
        uses[in.model->params[in.model->value(v).param.index()].name]++;
    }
  }
  Table table({{"tensor", false, 9},
               {"kind", false, 8},
               {"type", false, 7},
               {"reads", true, 5},
               {"because", false, 6},
               {"stored as", false, 4}});
  for (const auto& w : in.notes->weights) {
    const auto use = uses.find(w.name);
    const std::string stored = w.stored_as == w.name ? "" : w.stored_as.empty() ? "(no value)" : w.stored_as;
    table.add({w.name, std::string(kind_name(w.kind)), w.type, use == uses.end() ? "" : std::to_string(use->second),
               w.reason, stored});
  }
  return table.text(style);
}

std::string counts_line(const Inspection& in) {
  std::map<std::string, int> counts;
  for (const Op& op : in.model->ops) counts[op.kind]++;
  std::vector<std::string> parts;
  for (const auto& [kind, count] : counts) parts.push_back(fmt::format("{} {}", count, kind));
  std::string text = "operations:", line = text;
  text.clear();
  for (size_t i = 0; i < parts.size(); i++) {
    const std::string word = " " + parts[i] + (i + 1 < parts.size() ? "," : "");
    if (line.size() + word.size() > 100) {
      text += line + "\n";
      line = " ";
    }
    line += word;
  }
  return text + line + "\n";
}

std::string dims_text(const Inspection& in) {
  std::string text;
  for (const auto& [dim, inputs] : in.notes->assumed) {
    text += fmt::format("dim     `{}` of `{}` has no size, shown for {}: write `dim \"{}\" = {}` in the strategy\n",
                        dim, support::join(inputs, "`, `"), in.notes->assumed_size, dim, in.notes->assumed_size);
  }
  for (const std::string& unnamed : in.notes->assumed_unnamed) {
    text += fmt::format("dim     {} has no size and no name, shown for {}: name it when exporting the model\n", unnamed,
                        in.notes->assumed_size);
  }
  return text;
}

std::string io_text(const Inspection& in) {
  std::vector<std::pair<std::string, ValueId>> rows;
  for (ValueId v : in.model->inputs) rows.emplace_back("input", v);
  for (ValueId v : in.model->outputs) rows.emplace_back("output", v);
  std::string text;
  for (const auto& [what, v] : rows) {
    const ir::Value& value = in.model->value(v);
    const bool typed = in.typed || value.kind == ir::ValueKind::kInput;
    text += fmt::format("{:<6}  {}{}\n", what, value.name, typed ? ": " + to_string(value.type) : "");
  }
  return text;
}

std::string unsupported_text(const Inspection& in, const Style& style) {
  if (in.notes->unsupported.empty()) return "";
  Table table({{"not supported", false, 9}, {"nodes", true, 8}, {"first in", false, 7}, {"", false, 6}});
  for (const auto& row : in.notes->unsupported) {
    table.add({row.op, std::to_string(row.count), row.path.empty() ? "(model)" : row.path,
               row.other_opset ? "in this opset" : ""});
  }
  return "\n" + table.text(style);
}

std::string header(const Inspection& in) {
  int64_t trainable = 0, bytes = 0;
  for (const ir::Parameter& p : in.model->params) {
    if (!p.is_buffer) trainable += ir::num_elements(p.type.shape).constant;
    bytes += bytes_of(p.type, 1);
  }
  return fmt::format("{}: {}, IR {}, opset {}\n{} operations, {} parameters ({})\n", in.file,
                     in.model->producer.empty() ? "unknown exporter" : in.model->producer, in.notes->ir_version,
                     in.notes->opset, in.model->ops.size(), support::human_count(trainable),
                     support::human_bytes(bytes));
}

std::string lists_text(const Module& root) {
  std::string text;
  for (const LayerRule& list : outermost_lists(root))
    text += fmt::format("list    path \"{}\", i = {}\n", list.glob(), number_ranges(list.numbers));
  return text;
}

}  // namespace

Inspection inspect_model(const std::string& file, const Model& model, const frontend::ImportNotes& notes,
                         const std::vector<ir::LossTerm>& loss) {
  Inspection in{file, &model, &notes, true, {}, ""};
  std::vector<ir::LossTerm> terms = loss;
  if (terms.empty()) {
    if (const LossGuess guess = guess_loss(model); guess.found) terms = {guess.term};
  }
  if (terms.size() != 1) return in;
  if (auto saved = saved_bytes(model, terms[0])) {
    in.saved = std::move(*saved);
    in.saved_for = loss_text(terms[0]);
  }
  return in;
}

Inspection inspect_sketch(const std::string& file, const frontend::ImportNotes& notes) {
  return {file, &*notes.sketch, &notes, false, {}, ""};
}

std::vector<Tie> ties_of(const Model& model) {
  std::vector<std::vector<std::string>> paths(model.params.size());
  for (const Op& op : model.ops) {
    for (ValueId v : op.inputs) {
      if (!v.valid() || !model.value(v).param.valid()) continue;
      auto& list = paths[model.value(v).param.index()];
      if (std::find(list.begin(), list.end(), op.path) == list.end()) list.push_back(op.path);
    }
  }
  std::vector<Tie> ties;
  for (size_t p = 0; p < paths.size(); p++) {
    if (paths[p].size() > 1 && !model.params[p].is_buffer) ties.push_back({model.params[p].name, paths[p]});
  }
  return ties;
}

std::string inspect_text(const Inspection& in, const InspectOptions& options) {
  if (options.operations) return to_string(*in.model);
  if (options.parameters) return weights_table(in, options.style);
  const Module root = module_tree(*in.model, in.saved, in.typed);
  std::string text = header(in) + "\n" + io_text(in) + dims_text(in) + lists_text(root);
  for (const Tie& tie : ties_of(*in.model))
    text += fmt::format("tied    {}: read by {}\n", tie.parameter, support::join(tie.paths, ", "));
  text += experts_text(*in.model);
  text += "\n" + Tree(in, options, root).text() + unsupported_text(in, options.style);
  text += "\n" + counts_line(in);
  std::map<ir::WeightKind, int> kinds;
  for (const auto& w : in.notes->weights) kinds[w.kind]++;
  text +=
      fmt::format("tensors: {} parameters, {} buffers, {} constants; --params lists them, each with the reason\n",
                  kinds[ir::WeightKind::kParameter], kinds[ir::WeightKind::kBuffer], kinds[ir::WeightKind::kConstant]);
  if (!in.saved_for.empty()) text += fmt::format("saved: values kept for the backward of {}\n", in.saved_for);
  return text;
}

}  // namespace piper::inspect
