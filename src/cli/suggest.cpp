#include "cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "support/strings.h"

namespace piper::cli {

using ir::Model;
using ir::Value;
using ir::ValueId;

namespace {

// ---- the repeated blocks

struct Blocks {
  std::string prefix;            // "transformer.h"
  std::set<int64_t> indices;
  size_t ops = 0;
};

std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::optional<int64_t> as_index(const std::string& word) {
  if (word.empty() || word.size() > 6 || !std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); })) return std::nullopt;
  return std::stoll(word);
}

// The list of modules that holds most operations, by the first number in each path: blocks within blocks do not count.
Blocks find_blocks(const Model& model) {
  std::map<std::string, Blocks> lists;
  for (const ir::Op& op : model.ops) {
    std::string prefix;
    for (const std::string& part : components(op.path)) {
      if (const auto index = as_index(part)) {
        Blocks& list = lists[prefix];
        list.prefix = prefix;
        list.indices.insert(*index);
        list.ops++;
        break;
      }
      prefix += (prefix.empty() ? "" : ".") + part;
    }
  }
  Blocks best;
  for (const auto& [prefix, list] : lists) {
    if (list.indices.size() > 1 && !prefix.empty() && list.ops > best.ops) best = list;
  }
  return best;
}

// ---- the loss

bool is_integer(ir::DType dtype) { return dtype == ir::DType::kI64 || dtype == ir::DType::kI32; }

struct Loss {
  std::string line, why;
};

// Outputs with a float or more for each sample; logits before others.
std::vector<ValueId> candidates(const Model& model) {
  std::vector<ValueId> found;
  for (ValueId v : model.outputs) {
    const Value& value = model.value(v);
    if (ir::is_float(value.type.dtype) && !value.type.shape.empty() && ir::sample_dim(value.type.shape) >= 0) found.push_back(v);
  }
  std::stable_partition(found.begin(), found.end(), [&](ValueId v) { return model.value(v).name.find("logit") != std::string::npos; });
  return found;
}

Loss find_loss(const Model& model) {
  std::vector<ValueId> floats;
  for (ValueId v : model.outputs) {
    if (ir::is_float(model.value(v).type.dtype)) floats.push_back(v);
  }
  if (floats.size() == 1 && ir::num_elements(model.value(floats[0]).type.shape) == ir::Dim(1)) {
    const std::string& name = model.value(floats[0]).name;
    return {fmt::format("loss mean(output \"{}\")", name), "the model's own: a scalar, divided over the whole batch however that is cut"};
  }
  const std::vector<ValueId> outputs = candidates(model);
  if (outputs.empty()) return {"", ""};
  const Value& output = model.value(outputs.front());
  const ir::Dim classes = output.type.shape.back();
  const bool tokens = std::any_of(model.inputs.begin(), model.inputs.end(), [&](ValueId v) { return is_integer(model.value(v).type.dtype); });
  const bool named = output.name.find("logit") != std::string::npos;
  const bool image = output.type.shape.size() == 2 && model.value(model.inputs.front()).type.shape.size() == 4;
  const bool many = output.type.shape.size() >= 2 && classes.is_static() && classes.constant > 1;
  if (many && (named || image || (tokens && output.type.shape.size() == 3))) {
    const char* target = output.type.shape.size() == 2 ? "label" : "labels";
    return {fmt::format("loss cross_entropy(logits = output \"{}\", target = input \"{}\", ignore_index = -100)", output.name, target),
            fmt::format("the data brings `{}`: a class below {} for each row of the logits, or -100", target, classes.constant)};
  }
  return {fmt::format("loss mse(prediction = output \"{}\", target = input \"target\")", output.name),
          fmt::format("the data brings `target`, shaped like the output: {}", to_string(output.type))};
}

// ---- parameters

bool is_vector(const ir::Parameter& p) { return p.type.shape.size() <= 1; }

// "**.ln_1.weight" for "transformer.h.0.ln_1.weight".
std::string ending(const std::string& name) {
  const std::vector<std::string> parts = components(name);
  std::string tail = parts.back();
  if (parts.size() > 1 && !as_index(parts[parts.size() - 2])) tail = parts[parts.size() - 2] + "." + tail;
  return "**." + tail;
}

// Globs that match vectors only, and together all of them where that is possible.
std::vector<std::string> vector_globs(const Model& model) {
  std::vector<std::string> wanted{"**.bias"};
  for (const ir::Parameter& p : model.params) {
    if (p.trainable && is_vector(p)) wanted.push_back(ending(p.name));
  }
  std::vector<std::string> globs;
  std::set<std::string> covered;
  for (const std::string& glob : wanted) {
    std::set<std::string> matched;
    bool only_vectors = true;
    for (const ir::Parameter& p : model.params) {
      if (!support::match_path_glob(glob, p.name)) continue;
      matched.insert(p.name);
      only_vectors = only_vectors && is_vector(p);
    }
    const bool adds = std::any_of(matched.begin(), matched.end(), [&](const std::string& name) { return !covered.count(name); });
    if (!only_vectors || !adds) continue;
    covered.insert(matched.begin(), matched.end());
    globs.push_back(glob);
  }
  return globs;
}

// ---- the file

class Writer {
 public:
  Writer(const Model& model, const SuggestOptions& options) : model_(model), options_(options), blocks_(find_blocks(model)) {}

  Suggestion write() {
    head();
    if (!blocks_.indices.empty()) annotations();
    directives();
    train();
    return {std::move(out_), static_cast<int64_t>(blocks_.indices.size())};
  }

 private:
  bool interleaved() const { return options_.schedule == "interleaved"; }
  bool pipeline() const { return !blocks_.indices.empty(); }
  void line(const std::string& text) { out_ += text + "\n"; }

  void head() {
    if (pipeline()) {
      line("# A pipeline of data-parallel stages. Every number here is a parameter: piper compile … -D pp=4 -D dp=2");
      line("use pipeline  # schedules, as functions");
    } else {
      line("# Data parallel. The paths of this model have no numbered blocks to make pipeline stages of: tag operations yourself");
      line("# (piper inspect lists their paths) and place the tags, to train it in stages.");
    }
    line("");
    if (pipeline()) line(fmt::format("param pp = {} \"pipeline ranks\"", options_.pp));
    line(fmt::format("param dp = {} \"data-parallel replicas\"", options_.dp));
    if (pipeline() && interleaved()) line("param v = 2 \"stages of a rank\"");
    line(pipeline() ? "param microbatches = if pp == 1 then 1 else 2 * pp \"of a step; more of them make the bubble smaller\""
                    : "param microbatches = 1 \"of a step; more of them need less memory\"");
    line("");
    line(pipeline() ? "mesh dev[pp = pp, dp = dp]  # the last axis is fastest: replicas are neighbours" : "mesh dev[dp = dp]");
    for (const auto& [name, size] : options_.dims) line(fmt::format("dim \"{}\" = {}  # the exporter left it open", name, size));
    line("");
  }

  std::string stages() const { return interleaved() ? "pp * v" : "pp"; }

  void annotations() {
    line(fmt::format("tag layer = i where path \"{}.{{i}}.**\"  # {} blocks", blocks_.prefix, blocks_.indices.size()));
    line(fmt::format("tag stage = balanced(layer, {})  # contiguous, of near-equal FLOPs; the rest joins the ends", stages()));
    line("");
    line(fmt::format("for s in 0..{} {{", stages()));
    line(fmt::format("place all(stage = s) on dev[pp = {}]", interleaved() ? "s % pp" : "s"));
    line("}");
  }

  void directives() {
    line("replicate all() over dp bucket 4MiB  # gradients are summed in buckets while the backward runs");
    line("split all() into microbatches as mb");
    if (!pipeline()) return;
    const std::string call = interleaved()                ? "interleaved_1f1b(r, pp, v, microbatches)"
                             : options_.schedule == "gpipe" ? "gpipe(r, pp, microbatches)"
                                                            : "one_f_one_b(r, pp, microbatches)";
    line("for r in 0..pp {");
    line("order pipeline." + call);
    line("}");
  }

  void train() {
    const Loss loss = find_loss(model_);
    line("");
    line("train {");
    if (loss.line.empty()) {
      line("# No output has a float for each sample: name one, as loss mse(prediction = output \"…\", target = input \"…\")");
    } else {
      line("# " + loss.why);
      line(loss.line);
    }
    line("optimizer adamw(lr = 3e-4, betas = [0.9, 0.95], eps = 1e-8, weight_decay = 0.1)");
    for (const std::string& glob : vector_globs(model_)) line(fmt::format("no_decay param \"{}\"", glob));
    line("schedule cosine(warmup = 100, total = 10000, floor = 3e-5)");
    line("clip_norm 1.0");
    line(fmt::format("batch {}  # samples of a step, over all replicas and microbatches", options_.batch));
    normalisation();
    initial_values();
    line("seed 42");
    line("}");
  }

  void normalisation() {
    const auto has = [&](const char* kind) { return std::any_of(model_.ops.begin(), model_.ops.end(), [&](const ir::Op& op) { return op.kind == kind; }); };
    if (has("BatchNormInference")) line("# batch_norm training  # the file normalises by stored statistics; this takes those of the batch");
    if (has("BatchNorm")) line("coupled_groups dp * microbatches  # batch statistics are of one share of a microbatch");
  }

  void initial_values() {
    const bool none = std::any_of(model_.params.begin(), model_.params.end(), [](const ir::Parameter& p) { return p.trainable && p.initializer.empty(); });
    if (!none) return;
    line("# The file has no weights.");
    line("init param \"**\" normal(std = 0.02)");
    for (const std::string& glob : vector_globs(model_)) line(fmt::format("init param \"{}\" constant({})", glob, glob == "**.bias" ? "0.0" : "1.0"));
  }

  const Model& model_;
  const SuggestOptions& options_;
  Blocks blocks_;
  std::string out_;
};

}  // namespace

Suggestion suggest(const ir::Model& model, const SuggestOptions& options) { return Writer(model, options).write(); }

}  // namespace piper::cli
