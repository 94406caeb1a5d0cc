#include "inspect/loss_guess.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "passes/scalar_loss.h"
#include "support/strings.h"

namespace piper::inspect {

using ir::Model;
using ir::ValueId;

namespace {

bool names(const std::string& name, std::initializer_list<const char*> words) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return lower.find(word) != std::string::npos; });
}

bool is_integer(ir::DType dtype) { return dtype == ir::DType::kI64 || dtype == ir::DType::kI32; }

std::string list_of(const Model& model, const std::vector<ValueId>& values) {
  std::vector<std::string> texts;
  for (ValueId v : values) texts.push_back(fmt::format("`{}` {}", model.value(v).name, to_string(model.value(v).type)));
  return support::join(texts, ", ");
}

// Rows of the table that an integer input looks up: the size of its vocabulary. 0 when there is none.
int64_t vocabulary(const Model& model) {
  int64_t rows = 0;
  for (const ir::Op& op : model.ops) {
    if (op.kind != "Gather" || op.inputs.size() < 2 || !model.value(op.inputs[0]).param.valid()) continue;
    if (model.value(op.inputs[1]).kind != ir::ValueKind::kInput) continue;
    rows = std::max(rows, model.value(op.inputs[0]).type.shape[0].constant);
  }
  return rows;
}

// Operations whose result is the same numbers in another shape.
const ir::Op* maker(const Model& model, ValueId v) {
  while (model.value(v).producer.valid()) {
    const ir::Op& op = model.op(model.value(v).producer);
    if (op.kind != "Reshape" && op.kind != "Cast" && op.kind != "Identity") return &op;
    v = op.inputs[0];
  }
  return nullptr;
}

class Guess {
 public:
  explicit Guess(const Model& model) : model_(model) {}

  LossGuess run() {
    for (ValueId v : model_.outputs) {
      const ir::TensorType& type = model_.value(v).type;
      if (!ir::is_float(type.dtype)) continue;
      // A target has its samples in dim 0, and so has what is compared with it.
      const bool sampled = ir::sample_dim(type.shape) == 0 && type.shape[0] == ir::Dim::batch_size();
      if (sampled)
        candidates_.push_back(v);
      else if (ir::num_elements(type.shape) == ir::Dim(1))
        scalars_.push_back(v);
    }
    if (!scalars_.empty()) return own_loss();
    if (candidates_.empty()) {
      guess_.problem =
          fmt::format("no output of the model has floats for each sample in dim 0, or is a single float: {}",
                      list_of(model_, model_.outputs));
      return guess_;
    }
    return of_output(pick());
  }

 private:
  LossGuess own_loss() {
    ValueId best = scalars_[0];
    for (ValueId v : scalars_) {
      if (names(model_.value(v).name, {"loss"})) {
        best = v;
        break;
      }
    }
    guess_.found = true;
    guess_.term.kind = ir::LossTerm::Kind::kMean;
    guess_.term.output = model_.value(best).name;
    guess_.why = fmt::format("The model computes its own loss: `{}` is a single float.", guess_.term.output);
    guess_.change =
        "For another loss, name another output: `cross_entropy(logits = output \"...\", target = input \"...\")`.";
    guess_.cuttable = !passes::take_apart(model_, best).coupled.valid();
    return guess_;
  }

  ValueId pick() const {
    for (std::initializer_list<const char*> words : {std::initializer_list<const char*>{"logit"}, {"pred", "score"}}) {
      for (ValueId v : candidates_) {
        if (names(model_.value(v).name, words)) return v;
      }
    }
    return candidates_[0];
  }

  // The integer input that holds a class for each row of the output; -1 as class dim: there is none.
  std::pair<ValueId, int64_t> class_target(const ir::Shape& logits) const {
    for (ValueId v : model_.inputs) {
      const ir::Value& value = model_.value(v);
      if (!is_integer(value.type.dtype) || !(names(value.name, {"label", "target"}) || value.name == "y")) continue;
      for (size_t dim : {logits.size() - 1, size_t{1}}) {
        if (dim >= logits.size() || dim == 0) continue;
        ir::Shape rest = logits;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(dim));
        if (rest == value.type.shape) return {v, static_cast<int64_t>(dim)};
      }
    }
    return {ValueId(), -1};
  }

  LossGuess of_output(ValueId output) {
    const ir::Value& value = model_.value(output);
    const ir::Shape& shape = value.type.shape;
    guess_.found = true;
    guess_.term.output = value.name;
    const std::string is = fmt::format("`{}` is {}", value.name, to_string(value.type));
    const int64_t last = shape.back().is_static() ? shape.back().constant : 0;
    const int64_t words = vocabulary(model_);
    const auto [target, class_dim] =
        shape.size() >= 2 ? class_target(shape) : std::pair<ValueId, int64_t>{ValueId(), -1};
    const bool images = std::any_of(model_.inputs.begin(), model_.inputs.end(), [&](ValueId v) {
      return ir::is_float(model_.value(v).type.dtype) && model_.value(v).type.shape.size() == 4;
    });
    // Without a target in the graph the last dim holds the classes: not so for maps of scores, [B, classes, height,
    // width].
    const bool classes_last = shape.size() == 2 || (shape.size() == 3 && !images);
    guess_.tokens = words > 1 && last == words && shape.size() >= 3;
    if (target.valid()) {
      cross_entropy(model_.value(target).name,
                    fmt::format("{}, and the input `{}` holds integers for dim {} of it: classes.", is,
                                model_.value(target).name, class_dim));
    } else if (classes_last && guess_.tokens) {
      cross_entropy("labels", fmt::format("{}, a score for each of the {} tokens of the vocabulary.", is, words));
    } else if (classes_last && last > 1 && (names(value.name, {"logit"}) || (images && shape.size() == 2))) {
      cross_entropy(shape.size() == 2 ? "label" : "labels",
                    fmt::format("{}, which looks like scores of {} classes.", is, last));
    } else {
      mse(output, is, names(value.name, {"logit"}) && shape.size() > 2);
    }
    note_softmax(output);
    if (candidates_.size() > 1) guess_.why += fmt::format(" The outputs are {}.", list_of(model_, candidates_));
    return guess_;
  }

  void cross_entropy(const std::string& target, std::string why) {
    guess_.term.kind = ir::LossTerm::Kind::kCrossEntropy;
    guess_.term.target = target;
    guess_.why = std::move(why);
    guess_.change = fmt::format(
        "`{}` is what the data calls the classes; `mse(prediction = output \"{}\", target = input \"...\")` compares "
        "numbers.",
        target, guess_.term.output);
  }

  void mse(ValueId output, const std::string& is, bool map) {
    guess_.term.kind = ir::LossTerm::Kind::kMse;
    guess_.term.target = "target";
    guess_.why = fmt::format("{}, and nothing says that it is scores of classes.", is);
    guess_.change = fmt::format(
        "`target` is what the data calls the wanted values; for classes: `cross_entropy(logits = output \"{}\", target "
        "= input \"labels\")`.",
        model_.value(output).name);
    if (map) guess_.change += " With the classes in dim 1 the labels must be an input of the exported graph.";
  }

  void note_softmax(ValueId output) {
    const ir::Op* op = maker(model_, output);
    if (op == nullptr || op->kind != "Softmax" || guess_.term.kind != ir::LossTerm::Kind::kCrossEntropy) return;
    guess_.why += " It is made by a Softmax: cross_entropy applies its own, so export the scores before it.";
  }

  const Model& model_;
  LossGuess guess_;
  std::vector<ValueId> candidates_, scalars_;
};

}  // namespace

LossGuess guess_loss(const Model& model) { return Guess(model).run(); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "\"";
}

std::string loss_text(const ir::LossTerm& term) {
  switch (term.kind) {
    case ir::LossTerm::Kind::kCrossEntropy:
      return fmt::format("cross_entropy(logits = output {}, target = input {}, ignore_index = {})", quoted(term.output),
                         quoted(term.target), term.ignore_index);
    case ir::LossTerm::Kind::kMse:
      return fmt::format("mse(prediction = output {}, target = input {})", quoted(term.output), quoted(term.target));
    case ir::LossTerm::Kind::kMean:
      return fmt::format("mean(output {})", quoted(term.output));
  }
  return "";
}

}  // namespace piper::inspect
