#include "passes/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ops/op.h"
#include "support/error.h"
#include "support/strings.h"

namespace piper::passes {

using ir::Op;
using ir::OpId;
using ir::Parameter;
using ir::ParamId;
using ir::ValueId;
using support::Code;

void freeze_parameters(ir::Model& model, const ir::Strategy& strategy, support::Diagnostics& diagnostics) {
  for (const ir::Freeze& freeze : strategy.freezes) {
    bool any = false;
    for (Parameter& p : model.params) {
      if (!support::match_path_glob(freeze.glob, p.name)) continue;
      p.trainable = false;
      any = true;
    }
    if (!any) {
      diagnostics.report(Code::E0512, freeze.span, fmt::format("no parameter matches `{}`", freeze.glob))
          .help("`piper inspect MODEL` lists the parameters");
    }
  }
}

namespace {

// The shape under which people know a parameter: the file may hold its transpose.
ir::Shape known_shape(const Parameter& p) {
  return p.transposed ? ir::Shape(p.type.shape.rbegin(), p.type.shape.rend()) : p.type.shape;
}

std::string text_of(const Parameter& p) { return to_string(ir::TensorType{p.type.dtype, known_shape(p)}); }

class Tier {
 public:
  Tier(ir::TrainingDag& dag, support::Diagnostics& diagnostics) : dag_(dag), diagnostics_(diagnostics) {}

  void tie(const ir::Tie& t) {
    const auto a = find(t.a, t), b = find(t.b, t);
    if (!a || !b) return;
    if (a->param == b->param) {
      auto& d = diagnostics_.report(Code::E0521, t.span, fmt::format("`{}` and `{}` are one parameter already", t.a, t.b));
      if (t.a != t.b) d.note("the model has one initializer for both, or another `tie` made them one");
      return;
    }
    const bool flipped = t.transposed != (a->transposed != b->transposed);
    if (!check(*a, *b, flipped, t)) return;
    const Parameter& kept = param(a->param);
    const Parameter& gone = param(b->param);
    replace(gone.value, kept.value, flipped != (kept.transposed != gone.transposed));
    for (auto& [name, other] : tied_) {
      if (other.param == b->param) other = {a->param, other.transposed != flipped};
    }
    tied_[gone.name] = {a->param, flipped};
    // Twins that an exporter made of one initializer: its name stays with the one that is kept.
    const bool own = gone.initializer != kept.initializer && gone.initializer != kept.name;
    if (own && !gone.initializer.empty()) tied_[gone.initializer] = {a->param, flipped};
    gone_.push_back(b->param);
  }

  // Parameters that are tied to others are none of their own any more.
  void remove_gone() {
    std::sort(gone_.begin(), gone_.end());
    for (size_t i = gone_.size(); i-- > 0;) {
      dag_.model.value(param(gone_[i]).value).param = ParamId();  // nothing reads it
      dag_.model.params.erase(dag_.model.params.begin() + static_cast<std::ptrdiff_t>(gone_[i].index()));
    }
    for (size_t p = 0; p < dag_.model.params.size(); ++p) {
      dag_.model.value(dag_.model.params[p].value).param = ParamId(static_cast<int64_t>(p));
    }
  }

 private:
  struct Found {
    ParamId param;
    bool transposed = false;  // the name stands for the transpose of the parameter
  };

  const Parameter& param(ParamId id) const { return dag_.model.params[id.index()]; }

  // By the framework's name or the file's; a name that was tied before stands for what it was tied to.
  std::optional<Found> find(const std::string& name, const ir::Tie& t) {
    if (const auto it = tied_.find(name); it != tied_.end()) return it->second;
    const auto& params = dag_.model.params;
    for (const auto member : {&Parameter::name, &Parameter::initializer}) {
      const auto it = std::find_if(params.begin(), params.end(), [&](const Parameter& p) { return p.*member == name; });
      if (it != params.end()) return Found{ParamId(it - params.begin()), false};
    }
    auto& d = diagnostics_.report(Code::E0512, t.span, fmt::format("the model has no parameter `{}`", name));
    std::vector<std::string> names;
    for (const Parameter& p : params) names.push_back(p.name);
    const std::string meant = support::did_you_mean(name, names);
    d.help(meant.empty() ? "`piper inspect MODEL` lists the parameters" : fmt::format("did you mean `{}`?", meant));
    return std::nullopt;
  }

  bool check(const Found& a, const Found& b, bool flipped, const ir::Tie& t) {
    const Parameter& kept = param(a.param);
    const Parameter& gone = param(b.param);
    auto refuse = [&](const std::string& why) -> support::Diagnostic& {
      return diagnostics_.report(Code::E0521, t.span, fmt::format("`{}` and `{}` cannot be one parameter: {}", t.a, t.b, why));
    };
    for (const Parameter* p : {&kept, &gone}) {
      if (!p->is_buffer) continue;
      refuse(fmt::format("`{}` is a buffer", p->name));
      return false;
    }
    if (kept.trainable != gone.trainable) {
      const Parameter& frozen = kept.trainable ? gone : kept;
      const Parameter& other = kept.trainable ? kept : gone;
      refuse(fmt::format("`{}` is frozen, `{}` is not", frozen.name, other.name)).help("`freeze` both or none");
      return false;
    }
    const ir::Shape ours = known_shape(kept), theirs = known_shape(gone);
    const ir::Shape turned(ours.rbegin(), ours.rend());
    if (flipped && ours.size() != 2) {
      refuse(fmt::format("`{}` is {}, and only matrices have a transpose", kept.name, text_of(kept)));
      return false;
    }
    if (kept.type.dtype == gone.type.dtype && theirs == (flipped ? turned : ours)) return true;
    auto& d = refuse(fmt::format("`{}` is {}, `{}` is {}", kept.name, text_of(kept), gone.name, text_of(gone)));
    if (kept.type.dtype == gone.type.dtype && theirs == (flipped ? ours : turned)) {
      d.help(t.transposed ? "they have equal shapes without `transposed`" : "one is the other's transpose: add `transposed`");
    }
    return false;
  }

  // Reads of `gone` become reads of `kept`. A Linear says itself which way round its weight is; others read a Transpose of
  // their own, with their tags, so that it is placed where they are.
  void replace(ValueId gone, ValueId kept, bool transposed) {
    const size_t ops = dag_.model.ops.size();
    for (size_t i = 0; i < ops; ++i) {
      ValueId turned;
      for (size_t k = 0; k < dag_.model.ops[i].inputs.size(); ++k) {
        Op& op = dag_.model.ops[i];
        if (op.inputs[k] != gone) continue;
        if (!transposed) {
          op.inputs[k] = kept;
        } else if (op.kind == "Linear" && k == 1) {
          op.inputs[k] = kept;
          op.attrs.set("trans_w", int64_t{op.attrs.i("trans_w") == 0});
        } else {
          if (!turned.valid()) turned = transpose(kept, OpId(static_cast<int64_t>(i)));
          dag_.model.ops[i].inputs[k] = turned;
        }
      }
    }
  }

  ValueId transpose(ValueId matrix, OpId reader) {
    Op op;
    op.kind = "Transpose";
    op.inputs = {matrix};
    op.attrs = {{"perm", std::vector<int64_t>{1, 0}}};
    op.name = fmt::format("tied.{}.transposed", dag_.model.op(reader).name);
    op.path = dag_.model.op(reader).path;
    const auto made = ops::append_op(dag_.model, std::move(op));
    PIPER_CHECK(made.has_value(), "the transpose of a matrix");
    dag_.op_tags.push_back(dag_.op_tags[reader.index()]);
    return made->front();
  }

  ir::TrainingDag& dag_;
  support::Diagnostics& diagnostics_;
  std::map<std::string, Found> tied_;  // names that are no parameters any more
  std::vector<ParamId> gone_;
};

}  // namespace

void tie_parameters(ir::TrainingDag& dag, const ir::Strategy& strategy, support::Diagnostics& diagnostics) {
  if (strategy.ties.empty()) return;
  Tier tier(dag, diagnostics);
  for (const ir::Tie& t : strategy.ties) tier.tie(t);
  tier.remove_gone();
}

}  // namespace piper::passes
