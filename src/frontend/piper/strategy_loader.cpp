#include "frontend/piper/strategy_loader.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "frontend/piper/annotations.h"
#include "frontend/piper/big_stack.h"
#include "frontend/piper/directives.h"
#include "frontend/piper/parse.h"
#include "frontend/piper/syntax_help.h"
#include "frontend/piper/train.h"
#include "support/strings.h"

namespace piper::frontend {

namespace fs = std::filesystem;
using ast::Expr;
using support::Code;
using support::SourceSpan;

struct StrategyLoader::Impl {
  Impl(support::Diagnostics& d, LoadOptions o) : diagnostics(d), options(std::move(o)), evaluator(d) {}

  support::Diagnostics& diagnostics;
  LoadOptions options;
  Evaluator evaluator;
  std::string path, hashed;
  Module* main = nullptr;
  std::map<std::string, std::unique_ptr<Module>> modules;  // by canonical path
  ir::Mesh mesh;
  bool ok = true;

  // ---- Parsing ----

  Module* load(const std::string& file, const std::string& name, SourceSpan span) {
    std::error_code ignored;
    const std::string key = fs::weakly_canonical(file, ignored).string();
    if (const auto it = modules.find(key); it != modules.end()) return it->second.get();
    const auto read = read_text(file, span, diagnostics);
    if (!read) return nullptr;
    const int32_t id = *read;
    hashed += diagnostics.sources().text(id) + '\0';
    Module* module = modules.emplace(key, std::make_unique<Module>()).first->second.get();
    module->name = name;
    if (!check_text(id, diagnostics)) return nullptr;
    auto parsed = parse_file(id, diagnostics);
    if (!parsed) return nullptr;
    module->file = std::move(*parsed);
    define(*module, module != modules.begin()->second.get() || !name.empty());
    use_others(*module, file);
    return module;
  }

  void define_once(Module& module, const ast::Name& name, std::map<std::string, SourceSpan>& seen) {
    const auto [it, fresh] = seen.emplace(name.text, name.span);
    if (!fresh) diagnostics.report(Code::E0208, name.span, fmt::format("`{}` is defined twice", name.text)).label(it->second, "first here");
    if (std::find(builtin_names().begin(), builtin_names().end(), name.text) != builtin_names().end() && module.functions.count(name.text)) {
      diagnostics.report(Code::E0208, name.span, fmt::format("`{}` is a builtin", name.text));
    }
  }

  void define(Module& module, bool library) {
    std::map<std::string, SourceSpan> seen;
    for (const ast::Statement& s : module.file.statements) {
      if (const auto* fn = std::get_if<ast::Fn>(&s.node)) {
        module.functions[fn->name.text] = fn;
        define_once(module, fn->name, seen);
        std::set<std::string> params;
        for (const auto& p : fn->params) {
          if (!params.insert(p.text).second) diagnostics.report(Code::E0208, p.span, fmt::format("parameter `{}` twice", p.text));
        }
      } else if (const auto* let = std::get_if<ast::Let>(&s.node)) {
        module.lets[let->name.text] = let;
        define_once(module, let->name, seen);
      } else if (const auto* param = std::get_if<ast::Param>(&s.node); param && !library) {
        module.params[param->name.text] = param;
        define_once(module, param->name, seen);
      } else if (library && !std::holds_alternative<ast::Use>(s.node)) {
        diagnostics.report(Code::E0104, s.span, "a file that is used defines functions and values only").help("move this statement into the strategy file");
      }
    }
  }

  void use_others(Module& module, const std::string& file) {
    for (const ast::Statement& s : module.file.statements) {
      const auto* use = std::get_if<ast::Use>(&s.node);
      if (!use) continue;
      const fs::path here = fs::path(file).parent_path();
      std::vector<std::string> tried;
      if (use->file) {
        tried.push_back((here / use->file->text).string());
        for (const auto& dir : options.library_dirs) tried.push_back((fs::path(dir) / use->file->text).string());
      } else {
        tried.push_back((here / (use->name.text + ".piper")).string());
        tried.push_back((here / "lib" / (use->name.text + ".piper")).string());
        for (const auto& dir : options.library_dirs) tried.push_back((fs::path(dir) / (use->name.text + ".piper")).string());
      }
      std::error_code ignored;
      // A strategy called like a library does not mean itself.
      const auto found = std::find_if(tried.begin(), tried.end(), [&](const std::string& p) { return fs::exists(p, ignored) && !fs::equivalent(p, file, ignored); });
      if (found == tried.end()) {
        auto& d = diagnostics.report(Code::E0001, s.span, fmt::format("there is no library `{}`", use->file ? use->file->text : use->name.text));
        d.note(fmt::format("looked for {}", support::join(tried, ", ")));
        std::vector<std::string> known;
        for (const auto& dir : options.library_dirs) {
          for (const auto& entry : fs::directory_iterator(dir, ignored)) known.push_back(entry.path().stem().string());
        }
        std::sort(known.begin(), known.end());
        if (const std::string meant = support::did_you_mean(use->name.text, known); !meant.empty()) d.help(fmt::format("did you mean `use {}`?", meant));
        continue;
      }
      if (Module* used = load(*found, use->name.text, s.span)) module.uses[use->name.text] = used;
    }
  }

  // ---- Header ----

  // An option's text as a value, with a source of its own so that mistakes in it point into it.
  Result option_value(const std::string& flag, const std::string& text) {
    const int32_t id = diagnostics.sources().add(flag, text);
    if (!check_text(id, diagnostics)) return std::nullopt;
    const ast::ExprPtr e = parse_expression(id, diagnostics);
    return e ? evaluator.eval(*e, *main) : std::nullopt;
  }

  void collect_tags(const std::vector<ast::Statement>& statements) {
    auto& names = evaluator.tag_names;
    const auto add = [&](const std::string& name) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const ast::Statement& s : statements) {
      if (const auto* tag = std::get_if<ast::Tag>(&s.node)) add(tag->name.text);
      if (const auto* split = std::get_if<ast::Split>(&s.node)) add(split->dim.text);
      if (const auto* loop = std::get_if<ast::For>(&s.node)) collect_tags(loop->body);
      if (const auto* branch = std::get_if<ast::If>(&s.node)) {
        collect_tags(branch->body);
        collect_tags(branch->otherwise);
      }
    }
  }

  void collect_names() {
    collect_tags(main->file.statements);
    for (const ast::Statement& s : main->file.statements) {
      const auto* param = std::get_if<ast::Param>(&s.node);
      const auto* let = std::get_if<ast::Let>(&s.node);
      const ast::Name* name = param ? &param->name : let ? &let->name : nullptr;
      if (name && std::find(evaluator.tag_names.begin(), evaluator.tag_names.end(), name->text) != evaluator.tag_names.end()) {
        diagnostics.report(Code::E0208, name->span, fmt::format("`{}` is the name of a tag too", name->text));
      }
    }
  }

  // -D values first, so that the defaults that read them see them; defaults are evaluated when first read.
  void params() {
    std::map<std::string, Value> given;
    for (const auto& [name, param] : main->params) {
      const auto define = options.defines.find(name);
      if (define == options.defines.end()) continue;
      if (Result value = define_value(*param, define->second)) given[name] = *value;
    }
    for (auto& [name, value] : given) main->values[name] = value;
    for (const ast::Statement& s : main->file.statements) {
      const auto* param = std::get_if<ast::Param>(&s.node);
      if (!param) continue;
      const Result usual = evaluator.eval(*param->value, *main);
      const auto value = given.find(param->name.text);
      if (!usual) continue;
      if (value == given.end()) {
        main->values[param->name.text] = *usual;
      } else if (usual->get<double>() && value->second.get<int64_t>()) {
        main->values[param->name.text] = static_cast<double>(*value->second.get<int64_t>());
      } else if (usual->data.index() != value->second.data.index()) {
        evaluator.error(Code::E0209, param->name.span, fmt::format("`-D {}={}` is {}, the parameter is {}", param->name.text,
                                                                  options.defines.at(param->name.text), kind_name(value->second), kind_name(*usual)));
      }
    }
  }

  // The text of a -D option as a value; a string parameter takes it as it is when it has no quotes.
  Result define_value(const ast::Param& param, const std::string& text) {
    if (param.value->kind == Expr::Kind::kString && !text.starts_with('"')) return Value{text};
    return option_value(fmt::format("-D {}", param.name.text), text);
  }

  void check_defines(const ir::Strategy& strategy) {
    std::vector<std::string> names;
    for (const ast::Statement& s : main->file.statements) {
      if (const auto* param = std::get_if<ast::Param>(&s.node)) names.push_back(param->name.text);
      if (const auto* dim = std::get_if<ast::Dim>(&s.node)) names.push_back(dim->name.text);
    }
    for (const auto& [name, value] : options.defines) {
      if (std::find(names.begin(), names.end(), name) != names.end() || strategy.dims.count(name)) continue;
      auto& d = diagnostics.report(Code::E0209, fmt::format("`-D {}`: the strategy has no parameter `{}`", name, name));
      const std::string meant = support::did_you_mean(name, names);
      if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
      else if (!names.empty()) d.help(fmt::format("its parameters are {}", support::join(names, ", ")));
    }
  }

  void mesh_and_dims(ir::Strategy& strategy) {
    for (const ast::Statement& s : main->file.statements) {
      if (const auto* dim = std::get_if<ast::Dim>(&s.node)) {
        const auto define = options.defines.find(dim->name.text);
        const Result v = define == options.defines.end() ? evaluator.eval(*dim->value, *main) : option_value(fmt::format("-D {}", dim->name.text), define->second);
        const int64_t* size = v ? v->get<int64_t>() : nullptr;
        if (size && *size > 0) strategy.dims[dim->name.text] = *size;
        else if (v) diagnostics.report(Code::E0304, dim->value->span, fmt::format("a dim must be a positive integer, this is {}", to_string(*v)));
      }
      const auto* m = std::get_if<ast::Mesh>(&s.node);
      if (!m) continue;
      if (strategy.mesh.span.valid()) {
        diagnostics.report(Code::E0208, s.span, "there is one mesh in a file").label(strategy.mesh.span, "first here");
        continue;
      }
      strategy.mesh.name = m->name.text;
      strategy.mesh.span = s.span;
      for (const ast::Binding& b : m->axes) {
        const auto size = evaluator.integer(*b.value, *main, nullptr, "the size of an axis");
        if (!size) continue;
        if (*size < 1 || *size > (1 << 20)) diagnostics.report(Code::E0304, b.value->span, fmt::format("axis `{}` has size {}", b.name.text, *size)).help("a size is at least 1");
        else if (strategy.mesh.axis_index(b.name.text) >= 0) diagnostics.report(Code::E0208, b.name.span, fmt::format("axis `{}` twice", b.name.text));
        else strategy.mesh.axes.push_back({b.name.text, *size, b.name.span});
      }
    }
    mesh = strategy.mesh;
    evaluator.mesh = &mesh;
  }

  void treats(ir::Strategy& strategy) {
    const std::map<std::string, ir::WeightKind> kinds = {
        {"parameter", ir::WeightKind::kParameter}, {"buffer", ir::WeightKind::kBuffer}, {"constant", ir::WeightKind::kConstant}};
    for (const ast::Statement& s : main->file.statements) {
      const auto* treat = std::get_if<ast::Treat>(&s.node);
      if (!treat) continue;
      if (const auto kind = kinds.find(treat->kind.text); kind != kinds.end()) {
        strategy.treats.push_back({treat->glob.text, kind->second, s.span});
      } else {
        diagnostics.report(Code::E0304, treat->kind.span, fmt::format("a tensor cannot be treated as `{}`", treat->kind.text)).help("it is `parameter`, `buffer` or `constant`");
      }
    }
  }

  void train(ir::Strategy& strategy) {
    SourceSpan first;
    for (const auto& [key, value] : options.sets) {
      if (is_argument(key)) set_argument(key, value);
    }
    for (const ast::Statement& s : main->file.statements) {
      const auto* t = std::get_if<ast::Train>(&s.node);
      if (!t) continue;
      if (first.valid()) diagnostics.report(Code::E0208, s.span, "there is one `train` block in a file").label(first, "first here");
      first = s.span;
      strategy.train.span = s.span;
      std::map<std::string, SourceSpan> seen;
      for (const ast::TrainItem& item : t->items) {
        const bool repeats = item.word.text == "no_decay" || item.word.text == "init";
        const auto [it, fresh] = seen.emplace(item.word.text, item.word.span);
        if (!fresh && !repeats) diagnostics.report(Code::E0208, item.word.span, fmt::format("`{}` is given twice", item.word.text)).label(it->second, "first here");
        else if (!options.sets.count("train." + item.word.text)) apply_setting(item, evaluator, *main, strategy.train);
      }
    }
    for (const auto& [key, value] : options.sets) {
      if (!is_argument(key)) set(key, value, strategy);
    }
    check_train(strategy.train, evaluator);
  }

  // `train.optimizer.lr`: one argument of a setting.
  static bool is_argument(const std::string& key) { return key.rfind("train.", 0) == 0 && key.find('.', 6) != std::string::npos; }

  // The call that a setting of the file is, or nullptr, which is reported.
  ast::Expr* call_of(const std::string& key, const std::string& word) {
    for (ast::Statement& s : main->file.statements) {
      auto* t = std::get_if<ast::Train>(&s.node);
      if (!t) continue;
      for (ast::TrainItem& item : t->items) {
        if (item.word.text != word || !item.value) continue;
        if (item.value->kind == ast::Expr::Kind::kCall) return item.value.get();
        diagnostics.report(Code::E0209, item.value->span, fmt::format("`--set {}`: this `{}` has no arguments", key, word));
        return nullptr;
      }
    }
    diagnostics.report(Code::E0209, fmt::format("`--set {}`: the strategy has no `{}` to change", key, word))
        .help(fmt::format("set it as a whole: --set 'train.{}=…'", word));
    return nullptr;
  }

  void set_argument(const std::string& key, const std::string& value) {
    const size_t dot = key.find('.', 6);
    const std::string word = key.substr(6, dot - 6), argument = key.substr(dot + 1);
    ast::Expr* call = call_of(key, word);
    if (!call) return;
    const int32_t id = diagnostics.sources().add(fmt::format("--set {}", key), value);
    if (!check_text(id, diagnostics)) return;
    ast::ExprPtr e = parse_expression(id, diagnostics);
    if (!e) return;
    const ast::Name name{argument, e->span};
    const auto it = std::find_if(call->bindings.begin(), call->bindings.end(), [&](const ast::Binding& b) { return b.name.text == argument; });
    if (it == call->bindings.end()) call->bindings.push_back({name, std::move(e)});
    else *it = {name, std::move(e)};
  }

  void set(const std::string& key, const std::string& value, ir::Strategy& strategy) {
    const std::string word = key.rfind("train.", 0) == 0 ? key.substr(6) : "";
    const auto& words = setting_words();
    if (std::find(words.begin(), words.end(), word) == words.end()) {
      auto& d = diagnostics.report(Code::E0209, fmt::format("`--set {}`: there is no such setting", key));
      const bool bare = std::find(words.begin(), words.end(), key) != words.end();
      const std::string meant = bare ? key : support::did_you_mean(word, words);
      if (!meant.empty()) d.help(fmt::format("did you mean `train.{}`?", meant));
      else d.help(fmt::format("the settings are train.{}", support::join(words, ", train.")));
      return;
    }
    const int32_t id = diagnostics.sources().add(fmt::format("--set {}", key), fmt::format("{} {}", word, value));
    if (!check_text(id, diagnostics)) return;
    if (const auto item = parse_setting(id, diagnostics)) apply_setting(*item, evaluator, *main, strategy.train);
  }

  // ---- Body ----

  void tags(const ir::Model* model, const std::function<double(ir::OpId)>& flops, ir::Strategy& strategy) {
    if (!model) return;
    const std::function<double(ir::OpId)> cost = flops ? flops : [](ir::OpId) { return 1.0; };
    Annotator annotator(evaluator, diagnostics, *model, cost);
    run_tags(main->file.statements, nullptr, annotator, strategy);
  }

  static bool has_tags(const std::vector<ast::Statement>& statements) {
    return std::any_of(statements.begin(), statements.end(), [](const ast::Statement& s) {
      const auto* loop = std::get_if<ast::For>(&s.node);
      const auto* branch = std::get_if<ast::If>(&s.node);
      return std::holds_alternative<ast::Tag>(s.node) || (loop && has_tags(loop->body)) || (branch && (has_tags(branch->body) || has_tags(branch->otherwise)));
    });
  }

  // Only the `tag` statements, and the loops and branches that have some; directives come when all tags are known.
  void run_tags(const std::vector<ast::Statement>& statements, const Scope* scope, Annotator& annotator, ir::Strategy& strategy) {
    if (!has_tags(statements)) return;
    for (const ast::Statement& s : statements) {
      if (const auto* tag = std::get_if<ast::Tag>(&s.node)) annotator.apply(*tag, s.span, *main, scope, strategy.tags);
      if (const auto* loop = std::get_if<ast::For>(&s.node); loop && has_tags(loop->body)) {
        const Result list = evaluator.eval(*loop->list, *main, scope);
        const List* items = list ? list->get<List>() : nullptr;
        if (!items) continue;  // the directives' turn says why
        for (const Value& item : **items) {
          const int before = diagnostics.error_count();
          const Scope inner{scope, loop->name.text, item};
          evaluator.enter_loop(loop->name.text, item);
          run_tags(loop->body, &inner, annotator, strategy);
          evaluator.leave_loop();
          if (diagnostics.error_count() > before) break;
        }
      }
      if (const auto* branch = std::get_if<ast::If>(&s.node); branch && (has_tags(branch->body) || has_tags(branch->otherwise))) {
        const Result condition = evaluator.eval(*branch->condition, *main, scope);
        const bool* holds = condition ? condition->get<bool>() : nullptr;
        if (holds) run_tags(*holds ? branch->body : branch->otherwise, scope, annotator, strategy);
      }
    }
  }

  // Values that no statement read are evaluated too, for their mistakes.
  void unused_values() {
    for (const auto& [name, let] : main->lets) {
      Expr used;
      used.kind = Expr::Kind::kName;
      used.span = let->name.span;
      used.text = name;
      evaluator.eval(used, *main);
    }
  }

  // What the strategy defines and says nowhere else. A word that is also a tag or a clause counts as a use: nothing that is
  // used is ever reported.
  void warn_of_unused() {
    const auto only_defines = [](const ast::Statement& s) {
      return std::holds_alternative<ast::Use>(s.node) || std::holds_alternative<ast::Let>(s.node) || std::holds_alternative<ast::Fn>(s.node);
    };
    const auto& all = main->file.statements;
    if (std::all_of(all.begin(), all.end(), only_defines)) return;  // a library, for others to use
    const auto check = [&](const char* what, const ast::Name& name) {
      if (main->file.words.at(name.text) > 1) return;
      diagnostics.report(Code::W0202, name.span, fmt::format("the {} `{}` is never used", what, name.text));
    };
    for (const ast::Statement& s : main->file.statements) {
      if (const auto* let = std::get_if<ast::Let>(&s.node)) check("value", let->name);
      if (const auto* fn = std::get_if<ast::Fn>(&s.node)) check("function", fn->name);
      if (const auto* param = std::get_if<ast::Param>(&s.node)) check("parameter", param->name);
      if (const auto* use = std::get_if<ast::Use>(&s.node)) check("library", use->name);
    }
  }

  // Names in the strategy that must be the model's.
  void check_names(const ir::Model& model, const ir::Strategy& strategy) {
    std::vector<std::string> outputs, params;
    for (ir::ValueId id : model.outputs) outputs.push_back(model.value(id).name);
    for (const ir::Parameter& p : model.params) params.push_back(p.name);
    const auto unknown = [&](SourceSpan span, const char* what, const std::string& name, const std::vector<std::string>& known) {
      auto& d = evaluator.error(Code::E0512, span, fmt::format("the model has no {} `{}`", what, name));
      const std::string meant = support::did_you_mean(name, known);
      constexpr size_t kMost = 8;
      std::vector<std::string> shown(known.begin(), known.begin() + static_cast<ptrdiff_t>(std::min(known.size(), kMost)));
      if (!meant.empty()) d.help(fmt::format("did you mean `{}`?", meant));
      else if (!known.empty()) d.note(fmt::format("it has {}{}", support::join(shown, ", "), known.size() > kMost ? ", ..." : ""));
    };
    const auto matches = [&](const std::string& glob) {
      return std::any_of(params.begin(), params.end(), [&](const std::string& p) { return p == glob || support::match_path_glob(glob, p); });
    };
    for (const ir::LossTerm& term : strategy.train.loss) {
      if (std::find(outputs.begin(), outputs.end(), term.output) == outputs.end()) unknown(term.span, "output", term.output, outputs);
    }
    for (const ir::Freeze& f : strategy.freezes) {
      if (!matches(f.glob)) unknown(f.span, "parameter", f.glob, params);
    }
    for (const ir::ShardParam& s : strategy.shard_params) {
      if (!matches(s.glob)) unknown(s.span, "parameter", s.glob, params);
    }
  }
};

StrategyLoader::StrategyLoader(support::Diagnostics& diagnostics, LoadOptions options) : impl_(std::make_unique<Impl>(diagnostics, std::move(options))) {}
StrategyLoader::~StrategyLoader() = default;

bool StrategyLoader::parse(const std::string& path) {
  const int before = impl_->diagnostics.error_count();
  impl_->path = path;
  run_on_big_stack([&] { impl_->main = impl_->load(path, "", {}); });
  return impl_->main && impl_->diagnostics.error_count() == before;
}

bool StrategyLoader::evaluate_header(ir::Strategy& strategy) {
  Impl& s = *impl_;
  const int before = s.diagnostics.error_count();
  strategy.file = s.path;
  strategy.text = s.hashed.substr(0, s.hashed.find('\0'));
  run_on_big_stack([&] {
    s.collect_names();
    s.params();
    s.mesh_and_dims(strategy);
    s.treats(strategy);
    s.check_defines(strategy);
    s.train(strategy);
  });
  std::string all = s.hashed;
  for (const auto& [k, v] : s.options.defines) all += k + "=" + v + '\0';
  for (const auto& [k, v] : s.options.sets) all += k + "=" + v + '\0';
  strategy.hash = XXH3_64bits(all.data(), all.size());
  return s.diagnostics.error_count() == before;
}

bool StrategyLoader::has_train() const {
  const auto& all = impl_->main->file.statements;
  return std::any_of(all.begin(), all.end(), [](const ast::Statement& s) { return std::holds_alternative<ast::Train>(s.node); });
}

bool StrategyLoader::evaluate_body(const ir::Model* model, const std::function<double(ir::OpId)>& flops, ir::Strategy& strategy) {
  Impl& s = *impl_;
  const int before = s.diagnostics.error_count();
  s.evaluator.have_model = model != nullptr;
  s.evaluator.in_header = false;
  run_on_big_stack([&] {
    s.tags(model, flops, strategy);
    DirectiveEvaluator directives(s.evaluator, s.diagnostics, strategy);
    for (const ast::Statement& statement : s.main->file.statements) directives.run(statement, *s.main, nullptr);
    s.unused_values();
    if (!s.diagnostics.has_errors()) s.warn_of_unused();
    if (model) s.check_names(*model, strategy);
  });
  return s.diagnostics.error_count() == before;
}

}  // namespace piper::frontend
