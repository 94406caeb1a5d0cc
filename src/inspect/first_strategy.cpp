#include "inspect/first_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "inspect/layers.h"
#include "inspect/loss_guess.h"
#include "passes/pipeline.h"
#include "support/strings.h"

namespace piper::inspect {

using ir::Model;
using support::Expected;
using support::user_error;

namespace {

constexpr int64_t kVirtualStages = 2;  // stages of a rank in an interleaved schedule
constexpr int64_t kBatch = 16;
constexpr int64_t kGroups = 8;  // of the batch, for batch normalisation

std::string plural(int64_t n, const std::string& what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

// A sentence or more as comment lines of at most 100 columns; `code in backticks` stays together.
std::string comment(const std::string& text, const std::string& indent = "") {
  std::vector<std::string> words{""};
  bool code = false;
  for (char c : text) {
    if (c == '`') code = !code;
    if (c == ' ' && !code)
      words.emplace_back();
    else
      words.back() += c == '\n' || c == '\r' ? ' ' : c;
  }
  std::string out, line = indent + "#";
  for (const std::string& word : words) {
    if (line.size() + 1 + word.size() > 100 && line.size() > indent.size() + 1) {
      out += line + "\n";
      line = indent + "#";
    }
    line += " " + word;
  }
  return out + line + "\n";
}

// A name that the language takes as a parameter's.
std::string identifier(const std::string& text) {
  std::string out;
  for (char c : text)
    out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ? c : '_';
  static const std::set<std::string> kTaken = {
      "pp",    "dp",    "v",     "microbatches", "batch",  "F",      "B",     "I",      "W",         "U",        "all",
      "layer", "stage", "dim",   "param",        "for",    "if",     "else",  "in",     "let",       "fn",       "use",
      "tag",   "mesh",  "place", "order",        "split",  "train",  "where", "true",   "false",     "and",      "or",
      "not",   "then",  "tie",   "treat",        "stream", "assert", "shard", "freeze", "recompute", "replicate"};
  if (out.empty() || (out[0] >= '0' && out[0] <= '9') || kTaken.count(out)) out = "dim_" + out;
  return out;
}

// What must be known about the model before a line is written.
struct Facts {
  Layers layers;
  LossGuess loss;
  bool cuttable = true;     // whether the batch may be cut
  bool batch_norm = false;  // in training form: its statistics couple samples
  bool fixed_norm = false;  // in inference form
};

// Whether the strategy {loss, two microbatches} is refused because operations mix samples.
bool can_cut(const Model& model, const LossGuess& loss) {
  ir::Strategy strategy;
  strategy.train.loss = {loss.term};
  strategy.train.batch = 4;
  strategy.train.coupled_groups = 2;
  strategy.split = ir::Split{2, "mb", {}};
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  passes::run_passes(model, strategy, diagnostics, {}, "annotate");
  return std::none_of(diagnostics.all().begin(), diagnostics.all().end(),
                      [](const support::Diagnostic& d) { return d.code == support::Code::E0507; });
}

class Writer {
 public:
  Writer(const Model& model, const FirstStrategyOptions& options, Facts facts)
      : model_(model),
        options_(options),
        facts_(std::move(facts)),
        interleaved_(options.schedule == "interleaved"),
        pipelined_(!facts_.layers.rules.empty()) {
    microbatches_ = !facts_.cuttable ? 1 : pipelined_ ? 2 * options.pp : 1;
  }

  Expected<std::string> run() {
    if (auto fits = check(); !fits) return tl::make_unexpected(fits.error());
    header();
    params();
    cut();
    replicas();
    train();
    return text_;
  }

 private:
  int64_t stages() const { return options_.pp * (interleaved_ ? kVirtualStages : 1); }
  int64_t shares() const { return microbatches_ * options_.dp; }

  Expected<void> check() {
    if (stages() > 1 && !pipelined_) {
      return user_error(
          fmt::format("the model cannot be cut into {}: {}", plural(stages(), "stage"), facts_.layers.problem),
          "write `tag` rules by hand, from the paths of `piper inspect`, or use --pp 1");
    }
    if (pipelined_ && stages() > facts_.layers.count) {
      std::vector<std::string> globs;
      for (const LayerRule& rule : facts_.layers.rules) globs.push_back("`" + rule.glob() + "`");
      return user_error(
          fmt::format("{} for a model of {} ({})", plural(stages(), "stage"), plural(facts_.layers.count, "layer"),
                      support::join(globs, ", ")),
          interleaved_
              ? fmt::format("an interleaved schedule has {} stages a rank; use a smaller --pp, or --schedule 1f1b",
                            kVirtualStages)
              : "use a smaller --pp");
    }
    if (options_.dp > 1 && !facts_.cuttable) {
      return user_error("operations of the model mix samples, so the batch cannot be cut over replicas",
                        "use --dp 1, or leave these operations out of the exported graph");
    }
    groups_ = facts_.batch_norm ? std::max(kGroups, shares()) : 0;
    if (groups_ % std::max<int64_t>(shares(), 1) != 0) groups_ = shares();
    batch_ = options_.batch;
    if (batch_ == 0) batch_ = std::max({kBatch, shares(), 2 * groups_});
    if (batch_ < shares()) {
      return user_error(fmt::format("a batch of {} cannot be cut into {} for {}", batch_,
                                    fmt::format("{} microbatch{}", microbatches_, microbatches_ == 1 ? "" : "es"),
                                    plural(options_.dp, "replica")),
                        fmt::format("use a batch of at least {}", shares()));
    }
    if (groups_ > 0 && batch_ % groups_ != 0) {
      return user_error(
          fmt::format("a batch of {} is not {} equal groups, over which batch normalisation takes its statistics",
                      batch_, groups_),
          fmt::format("use a multiple of {} as batch", groups_));
    }
    return {};
  }

  void line(const std::string& text) { text_ += text + "\n"; }
  void blank() { text_ += "\n"; }

  void header() {
    text_ +=
        comment(fmt::format("How {} is trained. Written by `piper init`; every line is a choice that can be changed.",
                            options_.model_file));
    line("#");
    line(fmt::format("#   piper compile {} {} {}-o {}", options_.model_file, options_.strategy_file,
                     pipelined_ && facts_.layers.count >= 2 * (interleaved_ ? kVirtualStages : 1) && facts_.cuttable
                         ? "-D pp=2 -D dp=2 "
                         : "",
                     plan_name()));
    line(fmt::format("#   piper launch {} --data {} --steps 100", plan_name(), "synthetic"));
    line("#");
    text_ += comment(data_hint());
    if (pipelined_ && facts_.cuttable) line("use pipeline");
    blank();
  }

  std::string plan_name() const {
    const size_t slash = options_.strategy_file.rfind('/');
    std::string name = slash == std::string::npos ? options_.strategy_file : options_.strategy_file.substr(slash + 1);
    if (name.ends_with(".piper")) name.resize(name.size() - 6);
    return (name.empty() || name == "-" ? "model" : name) + ".plan";
  }

  std::string data_hint() const {
    std::vector<std::string> names;
    bool target_known = facts_.loss.term.target.empty();
    for (ir::ValueId v : model_.inputs) {
      names.push_back(fmt::format("`{}` {}", model_.value(v).name, to_string(model_.value(v).type)));
      target_known = target_known || model_.value(v).name == facts_.loss.term.target;
    }
    if (!target_known) names.push_back("the target `" + facts_.loss.term.target + "`");
    const bool tokens = facts_.loss.tokens && model_.inputs.size() == 1;
    return fmt::format("Data: {}a .safetensors file with {}; `synthetic` makes up random values.",
                       tokens ? "a file of tokens, `text:FILE`, or " : "", support::join(names, ", "));
  }

  void params() {
    if (pipelined_) {
      line(fmt::format("param pp = {} \"pipeline ranks, at most {}\"", options_.pp,
                       facts_.layers.count / (interleaved_ ? kVirtualStages : 1)));
    }
    if (facts_.cuttable)
      line(fmt::format("param dp = {} \"data-parallel replicas{}\"", options_.dp, pipelined_ ? " of each stage" : ""));
    if (interleaved_ && pipelined_) line(fmt::format("param v = {} \"stages of a rank\"", kVirtualStages));
    if (facts_.cuttable) {
      line(fmt::format("param microbatches = {} \"microbatches of a step{}\"", pipelined_ ? "2 * pp" : "1",
                       pipelined_ ? "; more of them, less waiting" : "; more of them, less memory"));
    }
    for (const auto& [name, size] : options_.dims)
      line(fmt::format("param {} = {} \"size of the model's dim `{}`\"", identifier(name), size, name));
    blank();
    if (!options_.dims.empty())
      text_ += comment("The file leaves these dims open; training needs a size, and the data must have it.");
    for (const auto& [name, size] : options_.dims) line(fmt::format("dim {} = {}", quoted(name), identifier(name)));
    if (!options_.dims.empty()) blank();
  }

  void cut() {
    if (!pipelined_) {
      text_ += comment(fmt::format("No pipeline: {}, so that a cut has to be written by hand, with `tag` and `place`.",
                                   facts_.layers.problem));
      if (facts_.cuttable) line("mesh dev[dp = dp]");
      blank();
      return;
    }
    text_ += comment(facts_.cuttable ? "The last axis is fastest: replicas of a stage are neighbours."
                                     : "One device a stage.");
    line(facts_.cuttable ? "mesh dev[pp = pp, dp = dp]" : "mesh dev[pp = pp]");
    blank();
    text_ += comment(fmt::format(
        "Where the model can be cut, in the order it runs: {}. `piper inspect` lists the paths.", layer_list()));
    for (const LayerRule& rule : facts_.layers.rules)
      line(fmt::format("tag layer = {} where path {}", rule.value(), quoted(rule.glob())));
    text_ += comment(
        "Contiguous groups of layers of near-equal FLOPs; what comes before the first layer joins the first group, "
        "what comes after the last the last. By hand: `tag stage = layer / 2`.");
    line(fmt::format("tag stage = balanced(layer, {})", interleaved_ ? "pp * v" : "pp"));
    blank();
    if (interleaved_)
      line("for s in 0..pp * v { place all(stage = s) on dev[pp = s % pp] } # rank r holds the stages r, pp + r, ...");
    else
      line("for s in 0..pp { place all(stage = s) on dev[pp = s] }");
  }

  std::string layer_list() const {
    if (facts_.layers.rules.size() > 6) return plural(facts_.layers.count, "module");
    std::vector<std::string> parts;
    for (const LayerRule& rule : facts_.layers.rules) {
      parts.push_back(rule.numbers.empty()
                          ? fmt::format("`{}`", rule.path)
                          : fmt::format("{} of `{}`", rule.numbers.size(), rule.path.empty() ? "{i}" : rule.path));
    }
    return support::join(parts, ", ");
  }

  void replicas() {
    if (!facts_.cuttable) {
      text_ += comment("Operations of the model mix samples, so the batch cannot be cut: no replicas, one microbatch.");
      blank();
      return;
    }
    text_ +=
        comment("Each replica takes its share of the batch; gradients are summed in buckets while the backward runs.");
    line("replicate all() over dp bucket 25MiB reduce_stream \"grad\"");
    line("split all() into microbatches as mb");
    if (pipelined_) {
      if (options_.schedule == "gpipe") {
        text_ += comment("All forwards, then all backwards; one_f_one_b waits as long and keeps less.");
        line("for r in 0..pp { order pipeline.gpipe(r, pp, microbatches) }");
      } else if (interleaved_) {
        text_ += comment("Several stages a rank: less waiting, more messages. microbatches must divide evenly.");
        line("for r in 0..pp { order pipeline.interleaved_1f1b(r, pp, v, microbatches) }");
      } else {
        text_ += comment("One forward, one backward; other orders are in strategies/lib/pipeline.piper.");
        line("for r in 0..pp { order pipeline.one_f_one_b(r, pp, microbatches) }");
      }
    }
    blank();
  }

  void train() {
    line("train {");
    text_ += comment(facts_.loss.why + " " + facts_.loss.change, "  ");
    line("  loss " + loss_text(facts_.loss.term));
    text_ += comment("What to tune first: lr and batch. Also sgd(lr, momentum) and adam.", "  ");
    line("  optimizer adamw(lr = 3e-4, betas = [0.9, 0.95], eps = 1e-8, weight_decay = 0.1)");
    text_ += comment("The rate rises to lr in `warmup` steps and falls to `floor` at step `total`.", "  ");
    line("  schedule cosine(warmup = 10, total = 1000, floor = 3e-5)");
    text_ += comment("Gradients of a larger global norm are scaled down to it.", "  ");
    line("  clip_norm 1.0");
    text_ += comment(
        fmt::format("Samples of a step, over all replicas; at least {}.", facts_.cuttable ? "microbatches * dp" : "1"),
        "  ");
    line(fmt::format("  batch {}", batch_));
    if (groups_ > 0) {
      text_ += comment(
          "Batch normalisation takes its statistics over each of these groups of the batch, on one device too; "
          "microbatches * dp must divide it.",
          "  ");
      line(fmt::format("  coupled_groups {}", groups_));
    }
    if (facts_.fixed_norm) {
      text_ += comment("The file has batch normalisation in inference form; `training` advances its statistics.", "  ");
      line("  batch_norm as_exported");
    }
    text_ += comment("Of the order of samples, dropout and initial values.", "  ");
    line("  seed 42");
    no_decay();
    init();
    line("}");
  }

  // Globs that match parameters of one dim or none, and no other.
  void no_decay() {
    std::vector<std::string> globs;
    auto covered = [&](const std::string& name) {
      return std::any_of(globs.begin(), globs.end(),
                         [&](const std::string& g) { return support::match_path_glob(g, name).has_value(); });
    };
    for (const ir::Parameter& p : model_.params) {
      if (!p.trainable || p.is_buffer || p.type.shape.size() > 1 || covered(p.name)) continue;
      for (const std::string& glob : candidates(p.name)) {
        if (!only_vectors(glob)) continue;
        globs.push_back(glob);
        break;
      }
    }
    if (globs.empty()) return;
    text_ += comment("No weight decay for norms and biases: they are not what overfits.", "  ");
    for (const std::string& glob : globs) line(fmt::format("  no_decay param {}", quoted(glob)));
  }

  // From the widest to the parameter alone.
  static std::vector<std::string> candidates(const std::string& name) {
    std::vector<std::string> parts = support::split(name, '.');
    for (std::string& part : parts) {
      if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) part = "*";
    }
    std::vector<std::string> out;
    if (parts.size() >= 2 && parts.back() == "bias") out.push_back("**.bias");
    if (parts.size() >= 2) {
      std::string module = parts[parts.size() - 2];
      const size_t letters = module.find_last_not_of("0123456789");
      if (letters != std::string::npos && letters + 1 < module.size()) module = module.substr(0, letters + 1) + "*";
      out.push_back("**." + module + "." + parts.back());
      out.push_back("**." + parts[parts.size() - 2] + "." + parts.back());
    }
    out.push_back(support::join(parts, "."));
    out.push_back(name);
    return out;
  }

  bool only_vectors(const std::string& glob) const {
    return std::all_of(model_.params.begin(), model_.params.end(), [&](const ir::Parameter& p) {
      return p.type.shape.size() <= 1 || p.is_buffer || !support::match_path_glob(glob, p.name);
    });
  }

  void init() {
    std::vector<const ir::Parameter*> empty;
    for (const ir::Parameter& p : model_.params) {
      if (p.initializer.empty() && !p.is_buffer) empty.push_back(&p);
    }
    if (empty.empty()) return;
    text_ += comment("The file has no weights: these are the initial values. The last rule that fits holds.", "  ");
    line("  init param \"**\" normal(std = 0.02)");
    std::set<std::string> seen;
    for (const ir::Parameter* p : empty) {
      if (p->type.shape.size() > 1) continue;
      const bool bias = p->name.ends_with("bias");
      for (const std::string& glob : candidates(p->name)) {
        const bool fits = std::all_of(empty.begin(), empty.end(), [&](const ir::Parameter* q) {
          return !support::match_path_glob(glob, q->name) ||
                 (q->type.shape.size() <= 1 && q->name.ends_with("bias") == bias);
        });
        if (!fits) continue;
        if (seen.insert(glob).second)
          line(fmt::format("  init param {} constant({})", quoted(glob), bias ? "0.0" : "1.0"));
        break;
      }
    }
  }

  const Model& model_;
  const FirstStrategyOptions& options_;
  Facts facts_;
  bool interleaved_, pipelined_;
  int64_t microbatches_ = 1, groups_ = 0, batch_ = 0;
  std::string text_;
};

}  // namespace

Expected<std::string> first_strategy(const Model& model, const FirstStrategyOptions& options) {
  Facts facts;
  facts.loss = guess_loss(model);
  if (!facts.loss.found) {
    return user_error("there is nothing to minimise: " + facts.loss.problem,
                      "export the scores or the loss as an output of the model");
  }
  for (const ir::Parameter& p : model.params) {
    if (!p.is_buffer || !p.initializer.empty()) continue;
    return user_error(fmt::format("the file has no value of the buffer `{}`, and nothing can make one up", p.name),
                      "export the buffers with their values: only parameters can be left out");
  }
  if (std::none_of(model.params.begin(), model.params.end(),
                   [](const ir::Parameter& p) { return p.trainable && !p.is_buffer; })) {
    return user_error("the file has no parameters: nothing in it can be trained",
                      "`piper inspect --params` says what its tensors were taken for; `treat \"glob\" as parameter` in "
                      "a strategy says otherwise");
  }
  const Module root = module_tree(model, {}, true);
  facts.layers = find_layers(model, root, options.pp * (options.schedule == "interleaved" ? kVirtualStages : 1));
  facts.cuttable = facts.loss.cuttable && can_cut(model, facts.loss);
  for (const ir::Op& op : model.ops) {
    facts.batch_norm = facts.batch_norm || op.kind == "BatchNorm";
    facts.fixed_norm = facts.fixed_norm || op.kind == "BatchNormInference";
  }
  return Writer(model, options, std::move(facts)).run();
}

}  // namespace piper::inspect
