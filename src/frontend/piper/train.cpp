#include "frontend/piper/train.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/strings.h"

namespace piper::frontend {

using ast::Expr;
using support::Code;

namespace {

// Reads the arguments of a setting such as `adamw(lr = 1e-3)`, each with its type, and complains about those left over.
class Arguments {
 public:
  Arguments(const Record& record, const Expr& call, Evaluator& evaluator) : record_(record), call_(call), evaluator_(evaluator) {}
  ~Arguments() {
    for (const auto& [name, value] : record_.fields) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      auto& d = evaluator_.error(Code::E0305, span_of(name), fmt::format("`{}` has no argument {}", record_.name, name[0] == '#' ? "without a name" : fmt::format("`{}`", name)));
      const std::string meant = support::did_you_mean(name, known_);
      if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
      else d.help(fmt::format("its arguments are {}", support::join(known_, ", ")));
    }
  }

  void number(const std::string& name, double& out) {
    if (const Value* v = find(name); v && !as_number(*v, &out)) wrong(name, "a number", *v);
  }
  void integer(const std::string& name, int64_t& out) {
    const Value* v = find(name);
    if (!v) return;
    if (const int64_t* i = v->get<int64_t>()) out = *i;
    else wrong(name, "an integer", *v);
  }
  void boolean(const std::string& name, bool& out) {
    const Value* v = find(name);
    if (!v) return;
    if (const bool* b = v->get<bool>()) out = *b;
    else wrong(name, "a boolean", *v);
  }
  // `required`: an error when it is missing.
  void text(const std::string& name, std::string& out, bool required) {
    const Value* v = find(name);
    if (v && v->get<std::string>()) out = *v->get<std::string>();
    else if (v) wrong(name, "a string", *v);
    else if (required) evaluator_.error(Code::E0305, call_.span, fmt::format("`{}` needs `{}`", record_.name, name));
  }
  void betas(double& a, double& b) {
    const Value* v = find("betas");
    if (!v) return;
    const List* l = v->get<List>();
    if (!l || (*l)->size() != 2 || !as_number((**l)[0], &a) || !as_number((**l)[1], &b)) wrong("betas", "a list of two numbers", *v);
  }
  const Value* find(const std::string& name) {
    known_.push_back(name);
    const auto it = record_.fields.find(name);
    return it == record_.fields.end() ? nullptr : it->second.get();
  }

 private:
  void wrong(const std::string& name, const char* what, const Value& v) {
    evaluator_.error(Code::E0305, span_of(name), fmt::format("`{}` of `{}` must be {}, this is {}", name, record_.name, what, kind_name(v)));
  }
  // Where the argument is written, else the whole setting.
  support::SourceSpan span_of(const std::string& name) const {
    for (size_t i = 0; i < call_.bindings.size(); ++i) {
      const ast::Binding& b = call_.bindings[i];
      if (b.name.text == name) return b.name.span;
      if (b.name.text.empty() && name == fmt::format("#{}", i)) return b.value->span;
    }
    return call_.span;
  }

  const Record& record_;
  const Expr& call_;
  Evaluator& evaluator_;
  std::vector<std::string> known_;
};

void add_loss_record(const Record& record, const Expr& e, double weight, Evaluator& evaluator, std::vector<ir::LossTerm>& out) {
  ir::LossTerm term;
  term.span = e.span;
  term.weight = weight;
  Arguments args(record, e, evaluator);
  if (record.name == "cross_entropy") {
    args.text("logits", term.output, true);
    args.text("target", term.target, true);
    args.integer("ignore_index", term.ignore_index);
    args.number("label_smoothing", term.label_smoothing);
    if (term.label_smoothing < 0 || term.label_smoothing >= 1) evaluator.error(Code::E0305, e.span, "`label_smoothing` must be in [0, 1)");
  } else if (record.name == "mse") {
    term.kind = ir::LossTerm::Kind::kMse;
    args.text("prediction", term.output, true);
    args.text("target", term.target, true);
  } else if (record.name == "mean") {
    term.kind = ir::LossTerm::Kind::kMean;
    args.text("#0", term.output, true);
  } else {
    evaluator.error(Code::E0305, e.span, fmt::format("`{}` is not a loss", record.name)).help("the losses are `cross_entropy`, `mse` and `mean`");
    return;
  }
  out.push_back(std::move(term));
}

// `a + 0.01 * b`: terms with weights.
void add_loss(const Expr& e, double weight, Evaluator& evaluator, Module& module, std::vector<ir::LossTerm>& out) {
  if (e.kind == Expr::Kind::kBinary && e.op == ast::Op::kAdd) {
    add_loss(*e.children[0], weight, evaluator, module, out);
    add_loss(*e.children[1], weight, evaluator, module, out);
    return;
  }
  if (e.kind == Expr::Kind::kBinary && e.op == ast::Op::kMul) {
    for (int side = 0; side < 2; ++side) {
      const Expr& factor = *e.children[static_cast<size_t>(side)];
      if (factor.kind == Expr::Kind::kCall && !factor.text.empty() && factor.module.text.empty() &&
          (factor.text == "cross_entropy" || factor.text == "mse" || factor.text == "mean")) continue;
      const Result r = evaluator.eval(factor, module);
      double w = 0;
      if (r && as_number(*r, &w)) return add_loss(*e.children[static_cast<size_t>(1 - side)], weight * w, evaluator, module, out);
      if (!r) return;
    }
    evaluator.error(Code::E0305, e.span, "a loss can only be multiplied by a number");
    return;
  }
  const Result r = evaluator.eval(e, module);
  if (!r) return;
  if (const Record* record = r->get<Record>()) return add_loss_record(*record, e, weight, evaluator, out);
  evaluator.error(Code::E0305, e.span, fmt::format("a loss is `cross_entropy(...)`, `mse(...)` or a weighted sum, this is {}", kind_name(*r)));
}

void set_optimizer(const Record& record, const Expr& e, Evaluator& evaluator, ir::Optimizer& out) {
  out = ir::Optimizer{};
  out.span = e.span;
  Arguments args(record, e, evaluator);
  args.number("lr", out.lr);
  args.number("weight_decay", out.weight_decay);
  if (record.name == "sgd") {
    out.kind = ir::Optimizer::Kind::kSgd;
    args.number("momentum", out.momentum);
    args.boolean("nesterov", out.nesterov);
  } else if (record.name == "adam" || record.name == "adamw") {
    out.kind = record.name == "adam" ? ir::Optimizer::Kind::kAdam : ir::Optimizer::Kind::kAdamW;
    if (record.name == "adamw" && !record.fields.count("weight_decay")) out.weight_decay = 0.01;
    args.betas(out.beta1, out.beta2);
    args.number("eps", out.eps);
  } else {
    evaluator.error(Code::E0305, e.span, fmt::format("`{}` is not an optimizer", record.name)).help("the optimizers are `sgd`, `adam` and `adamw`");
  }
  if (out.lr < 0 || out.eps < 0 || out.weight_decay < 0 || out.momentum < 0) evaluator.error(Code::E0305, e.span, "an optimizer's numbers must not be negative");
  if (out.beta1 < 0 || out.beta1 >= 1 || out.beta2 < 0 || out.beta2 >= 1) evaluator.error(Code::E0305, e.span, "`betas` must be in [0, 1)");
}

void set_schedule(const Record& record, const Expr& e, Evaluator& evaluator, ir::LrSchedule& out) {
  out = ir::LrSchedule{};
  Arguments args(record, e, evaluator);
  args.integer("warmup", out.warmup);
  if (record.name == "cosine" || record.name == "linear") {
    out.kind = record.name == "cosine" ? ir::LrSchedule::Kind::kCosine : ir::LrSchedule::Kind::kLinear;
    args.integer("total", out.total);
    args.number("floor", out.floor);
    if (out.total <= out.warmup) evaluator.error(Code::E0305, e.span, fmt::format("`{}` needs `total` above `warmup`", record.name));
  } else if (record.name != "constant") {
    evaluator.error(Code::E0305, e.span, fmt::format("`{}` is not a schedule", record.name)).help("the schedules are `constant`, `linear` and `cosine`");
  }
  if (out.warmup < 0 || out.floor < 0) evaluator.error(Code::E0305, e.span, "a schedule's numbers must not be negative");
}

void add_init(const ast::TrainItem& item, const Record& record, Evaluator& evaluator, ir::Train& train) {
  ir::InitRule rule;
  rule.glob = item.glob.text;
  rule.span = item.span;
  Arguments args(record, *item.value, evaluator);
  if (record.name == "normal") {
    args.number("mean", rule.a);
    args.number("std", rule.b);
  } else if (record.name == "uniform") {
    rule.kind = ir::InitRule::Kind::kUniform;
    args.number("low", rule.a);
    args.number("high", rule.b);
  } else if (record.name == "constant") {
    rule.kind = ir::InitRule::Kind::kConstant;
    args.number("#0", rule.a);
  } else {
    evaluator.error(Code::E0305, item.value->span, fmt::format("`{}` is not an init rule", record.name)).help("the rules are `normal`, `uniform` and `constant`");
  }
  train.init.push_back(std::move(rule));
}

void set_bare(const ast::TrainItem& item, Evaluator& evaluator, ir::Train& train) {
  const std::string &word = item.word.text, &bare = item.bare.text;
  if (word == "on_nonfinite" && (bare == "skip" || bare == "stop")) {
    train.skip_nonfinite = bare == "skip";
  } else if (word == "precision" && (bare == "f32" || bare == "bf16")) {
    train.precision = bare == "f32" ? ir::DType::kF32 : ir::DType::kBF16;
  } else if (word == "batch_norm" && (bare == "training" || bare == "as_exported")) {
    train.batch_norm = bare == "training" ? ir::Train::BatchNorm::kTraining : ir::Train::BatchNorm::kAsExported;
  } else {
    const char* help = word == "precision"    ? "it is `f32` or `bf16`"
                       : word == "batch_norm" ? "it is `training` or `as_exported`"
                                              : "it is `skip` or `stop`";
    evaluator.error(Code::E0305, item.bare.span, fmt::format("`{}` cannot be `{}`", word, bare)).help(help);
  }
}

// batch, seed, coupled_groups, clip_norm
void set_number(const ast::TrainItem& item, const Value& value, Evaluator& evaluator, ir::Train& train) {
  const std::string& word = item.word.text;
  double number = 0;
  const int64_t* i = value.get<int64_t>();
  if (word == "clip_norm" && as_number(value, &number) && number > 0) train.clip_norm = number;
  else if (word == "batch" && i && *i > 0) train.batch = *i;
  else if (word == "seed" && i && *i >= 0) train.seed = static_cast<uint64_t>(*i);
  else if (word == "coupled_groups" && i && *i > 0) train.coupled_groups = *i;
  else evaluator.error(Code::E0305, item.value->span, fmt::format("`{}` must be {}, this is {}", word, word == "clip_norm" ? "a positive number" : word == "seed" ? "an integer that is not negative" : "a positive integer", to_string(value)));
}

}  // namespace

void apply_setting(const ast::TrainItem& item, Evaluator& evaluator, Module& module, ir::Train& train) {
  const std::string& word = item.word.text;
  if (!item.bare.text.empty()) return set_bare(item, evaluator, train);
  if (word == "no_decay") {
    train.no_decay.push_back(item.glob.text);
    return;
  }
  if (word == "loss") {
    train.loss.clear();
    return add_loss(*item.value, 1.0, evaluator, module, train.loss);
  }
  const Result r = evaluator.eval(*item.value, module);
  if (!r || r->unknown()) return;
  if (word != "optimizer" && word != "schedule" && word != "init") return set_number(item, *r, evaluator, train);
  const Record* record = r->get<Record>();
  if (!record) {
    evaluator.error(Code::E0305, item.value->span, fmt::format("`{}` needs a call such as `{}`, this is {}", word,
                                                               word == "optimizer" ? "adamw(lr = 1e-3)" : word == "schedule" ? "cosine(warmup = 100, total = 1000)" : "normal(std = 0.02)", kind_name(*r)));
    return;
  }
  if (word == "optimizer") set_optimizer(*record, *item.value, evaluator, train.optimizer);
  if (word == "schedule") set_schedule(*record, *item.value, evaluator, train.schedule);
  if (word == "init") add_init(item, *record, evaluator, train);
}

void check_train(const ir::Train& train, Evaluator& evaluator) {
  if (train.schedule.kind != ir::LrSchedule::Kind::kConstant && train.schedule.floor > train.optimizer.lr) {
    evaluator.error(Code::E0305, train.span, fmt::format("the schedule's floor {} is above the learning rate {}", train.schedule.floor, train.optimizer.lr));
  }
}

}  // namespace piper::frontend
