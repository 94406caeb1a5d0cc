#include "tests/p1/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace piper::p1 {

namespace {

constexpr const char* kAdamW = "adamw(lr = 1e-3, betas = [0.9, 0.95], eps = 1e-3, weight_decay = 0.1)";
constexpr const char* kSgd = "sgd(lr = 0.05, momentum = 0.9, nesterov = false, weight_decay = 0.01)";
// Normalised over single samples, large steps turn rounding into other signs in front of a Relu.
constexpr const char* kSmallSgd = "sgd(lr = 0.01, momentum = 0.9, nesterov = false, weight_decay = 0.01)";

struct Shape {
  const char* strategy;
  int pp, dp, v;
  int zero = 0;
  int prefetch = 1;  // of the strategies that have it
  int ep = 0;        // of the strategies that divide experts: devices of an axis for them, 1 where they have that of the replicas
};

// Strategies with their worlds 1, 2, 4, 8.
constexpr Shape kShapes[] = {
    {"single", 1, 1, 1},       {"dp", 1, 1, 1},           {"dp", 1, 2, 1},          {"dp", 1, 4, 1},
    {"dp", 1, 8, 1},           {"gpipe", 1, 1, 1},        {"gpipe", 2, 1, 1},       {"gpipe", 4, 1, 1},
    {"gpipe", 8, 1, 1},        {"gpipe", 2, 2, 1},        {"gpipe", 2, 4, 1},       {"gpipe", 4, 2, 1},
    {"1f1b", 1, 1, 1},         {"1f1b", 2, 1, 1},         {"1f1b", 4, 1, 1},        {"1f1b", 8, 1, 1},
    {"1f1b", 2, 2, 1},         {"1f1b", 2, 4, 1},         {"1f1b", 4, 2, 1},        {"interleaved", 1, 1, 2},
    {"interleaved", 2, 1, 2},  {"interleaved", 4, 1, 2},  {"interleaved", 2, 2, 2}, {"interleaved", 2, 4, 2},
    {"interleaved", 4, 2, 2},  {"looped_bfs", 2, 1, 2},   {"looped_bfs", 4, 1, 2},  {"looped_bfs", 2, 2, 2},
    {"looped_bfs", 2, 1, 4},   {"zb_h1", 1, 1, 1},        {"zb_h1", 2, 1, 1},       {"zb_h1", 4, 2, 1},
    {"zb_h2", 2, 1, 1},        {"zb_h2", 4, 1, 1},        {"zb_h2", 2, 2, 1},       {"interleaved_zb", 2, 1, 2},
    {"interleaved_zb", 4, 1, 2}, {"interleaved_zb", 2, 2, 2}, {"zb_v", 1, 1, 2},     {"zb_v", 2, 1, 2},
    {"zb_v", 4, 1, 2},         {"zb_v", 2, 4, 2},         {"v_half", 2, 1, 2},      {"v_half", 4, 2, 2},
    {"v_min", 2, 2, 2},        {"v_min", 4, 1, 2},
    // Sharded replicas; hsdp has pp groups of dp devices.
    {"dp", 1, 2, 1, 1},        {"dp", 1, 4, 1, 2},        {"dp", 1, 3, 1, 2},       {"dp", 1, 8, 1, 1},
    {"fsdp", 1, 2, 1, 3, 0},   {"fsdp", 1, 4, 1, 3, 1},   {"fsdp", 1, 3, 1, 3, 9},  {"hsdp", 2, 2, 1, 3, 1},
    {"hsdp", 2, 4, 1, 3, 2},   {"gpipe", 2, 2, 1, 2},     {"gpipe", 2, 4, 1, 3},    {"1f1b", 2, 2, 1, 1},
    {"1f1b", 2, 2, 1, 2},      {"1f1b", 4, 2, 1, 3},      {"1f1b", 2, 3, 1, 1},     {"interleaved", 2, 2, 2, 2},
    {"interleaved_zero3", 2, 2, 2, 3, 0}, {"interleaved_zero3", 2, 2, 2, 3, 1}, {"zb_h1", 2, 2, 1, 3},
    {"dualpipe_v", 1, 2, 2},   {"dualpipe_v", 2, 1, 2},   {"dualpipe_v", 2, 2, 2, 3}, {"dualpipe", 2, 1, 1},
    {"dualpipe", 4, 1, 1},     {"dualpipe", 2, 2, 1},     {"dualpipe", 2, 2, 1, 2},
    {"unequal", 4, 1, 1},      {"unequal", 4, 2, 1},      {"unequal", 4, 2, 1, 2},   {"unequal", 4, 2, 1, 3},
    {"zb_v", 2, 2, 2, 2},      {"interleaved_zb", 2, 2, 2, 1}, {"v_half", 2, 2, 2, 3},
    // Forwards that are computed again.
    {"1f1b_recompute", 1, 1, 1}, {"1f1b_recompute", 2, 2, 1}, {"1f1b_recompute", 4, 2, 1}, {"1f1b_recompute", 2, 2, 1, 3},
    // Divided experts, for models that have some.
    {"ep", 1, 1, 1, 0, 1, 1},    {"ep", 1, 2, 1, 0, 1, 1},    {"ep", 1, 3, 1, 1, 1, 1},    {"ep", 1, 4, 1, 2, 1, 1},
    {"ep", 1, 2, 1, 3, 1, 1},    {"dp_ep", 1, 2, 1, 0, 1, 2}, {"dp_ep", 2, 1, 1, 0, 1, 2}, {"dp_ep", 2, 2, 1, 1, 1, 2},
    {"dp_ep", 1, 2, 1, 2, 1, 4}, {"dp_ep", 4, 1, 1, 3, 1, 2},
    {"dualpipe_ep", 2, 1, 2, 0, 1, 2}, {"dualpipe_ep", 2, 1, 2, 1, 1, 2},
};

struct Cut {
  const char* name;
  int batch, microbatches;
};
// One microbatch, equal ones, unequal ones; with eight replicas fewer, so that nobody is left without a sample.
constexpr Cut kCuts[] = {{"whole", 24, 1}, {"even", 24, 4}, {"uneven", 23, 4}};

// Groups of samples that a batch normalisation takes its statistics over: the largest that no cut of the batch goes through.
int coupled_groups(const Cut& cut, int shares) {
  if (shares == 1) return 1;
  return cut.batch % shares == 0 ? shares : cut.batch;
}

Cell make_cell(const ModelCase& model, const Shape& shape, const Cut& cut, size_t salt) {
  Cell cell;
  cell.model = model;
  cell.strategy = shape.strategy;
  cell.world = shape.pp * shape.dp * std::max(1, shape.ep);
  const int replicas = shape.ep > 0 ? shape.dp * shape.ep : cell.strategy == "hsdp" ? shape.pp * shape.dp : cell.strategy == "unequal" ? 2 * shape.dp : shape.dp;
  int microbatches = replicas == 8 && cut.microbatches > 1 ? 2 : cut.microbatches;
  if (cell.strategy.starts_with("dualpipe")) microbatches = std::max(microbatches, 2 * shape.pp);
  if (cell.strategy == "single") {
    cell.defines = {{"microbatches", std::to_string(microbatches)}};
  } else if (cell.strategy == "dp" || cell.strategy == "fsdp" || cell.strategy == "ep") {
    cell.defines = {{"dp", std::to_string(shape.dp)}, {"microbatches", std::to_string(microbatches)}};
  } else if (cell.strategy == "unequal") {
    cell.defines = {{"dp", std::to_string(shape.dp)}, {"microbatches", std::to_string(microbatches)}};
  } else if (cell.strategy == "hsdp") {
    cell.defines = {{"groups", std::to_string(shape.pp)}, {"shards", std::to_string(shape.dp)}, {"microbatches", std::to_string(microbatches)}};
  } else {
    cell.defines = {{"pp", std::to_string(shape.pp)}, {"dp", std::to_string(shape.dp)}, {"microbatches", std::to_string(microbatches)}};
    const std::set<std::string> virtual_stages = {"interleaved", "interleaved_zb", "interleaved_zero3", "looped_bfs"};
    if (virtual_stages.count(cell.strategy)) cell.defines["v"] = std::to_string(shape.v);
  }
  if (cell.strategy == "dp_ep" || cell.strategy == "dualpipe_ep") cell.defines["ep"] = std::to_string(shape.ep);
  if (cell.strategy == "dualpipe_ep") cell.defines.erase("dp");
  if (shape.zero > 0) {
    const std::set<std::string> always_three = {"fsdp", "hsdp", "interleaved_zero3"};
    if (always_three.count(cell.strategy)) cell.defines["prefetch"] = std::to_string(shape.prefetch);
    else cell.defines["zero"] = std::to_string(shape.zero);
    cell.defines["bucket"] = "8KiB";  // so that the small models have several
  }
  cell.sets = model.sets;
  cell.sets["train.batch"] = std::to_string(cut.batch);
  cell.sets["train.optimizer"] = salt % 2 == 0 ? kAdamW : model.batch_norm ? kSmallSgd : kSgd;
  if (model.batch_norm) cell.sets["train.coupled_groups"] = std::to_string(coupled_groups(cut, microbatches * replicas));
  cell.sets["train.schedule"] = "constant(warmup = 0)";
  // Clipped to 0.5, runs of `moe` with AdamW part by 7e-5 at the third step, from 1e-7 before, and with no other settings:
  // as by a token within rounding between two experts, where either choice is right.
  const char* clipped = model.name == "moe" ? "0.4" : "0.5";
  cell.sets["train.clip_norm"] = salt % 3 == 0 ? clipped : "100.0";
  cell.rendezvous = salt % 2 == 1;
  return cell;
}

}  // namespace

std::string Cell::name() const {
  std::string text = fmt::format("{} {}", model.name, strategy);
  for (const auto& [k, v] : defines) text += fmt::format(" {}={}", k, v);
  return text + fmt::format(" batch={}{}", sets.at("train.batch"), processes ? " processes" : rendezvous ? " rendezvous" : "");
}

Cell Cell::reference() const {
  Cell r = *this;
  r.strategy = "single";
  r.defines = {{"microbatches", "1"}};
  r.world = 1;
  r.processes = r.rendezvous = false;
  return r;
}

std::string Cell::reference_key() const {
  std::string key = model.name;
  for (const auto& [k, v] : sets) key += fmt::format(" {}={}", k, v);
  return key;
}

std::vector<ModelCase> models() {
  const std::map<std::string, std::string> lm;
  const std::map<std::string, std::string> mse{{"train.loss", "mse(prediction = output \"prediction\", target = input \"y\")"}};
  const std::map<std::string, std::string> own_loss{{"train.loss", "mean(output \"loss\")"}};
  const std::map<std::string, std::string> image{{"train.loss", "cross_entropy(logits = output \"logits\", target = input \"label\")"}};
  return {
      {"mlp", "models/mlp/mlp.onnx", "models/mlp/data.safetensors", mse, 8},
      {"gpt", "models/gpt_tiny/gpt_tiny.onnx", "models/gpt_tiny/data.safetensors", lm, 4},
      {"llama", "models/llama_tiny/llama_tiny.onnx", "models/llama_tiny/data.safetensors", lm, 4},
      {"bert", "models/bert_tiny/bert_tiny.onnx", "models/bert_tiny/data.safetensors", lm, 4},
      {"vit", "models/vit_tiny/vit_tiny.dynamo.onnx", "models/vit_tiny/data.safetensors", image, 4},
      {"t5", "models/t5_tiny/t5_tiny.onnx", "models/t5_tiny/data.safetensors", lm, 4},
      {"cnn_gn", "models/cnn_gn/cnn_gn.dynamo.onnx", "models/cnn_gn/data.safetensors", image, 4},
      {"cnn_bn", "models/cnn_bn/cnn_bn.onnx", "models/cnn_bn/data.safetensors", image, 4, true},
      {"rnn", "models/rnn_tiny/rnn_tiny.onnx", "models/rnn_tiny/data.safetensors", lm, 4},
      {"own_loss", "models/own_loss/own_loss.dynamo.onnx", "models/own_loss/data.safetensors", own_loss, 4},
      {"moe", "models/moe_tiny/moe_tiny.onnx", "models/moe_tiny/data.safetensors", own_loss, 4, false, true},
      {"moe_capacity", "models/moe_capacity/moe_capacity.dynamo.onnx", "models/moe_capacity/data.safetensors", own_loss, 4, false, true},
      {"gpt_dropout", "models/gpt_dropout/gpt_dropout.onnx", "models/gpt_dropout/data.safetensors", lm, 4},
  };
}

// The first three models in every cell, and those with experts in every cell that divides them; of the others each shape
// and each way to cut the batch, in turns.
std::vector<Cell> matrix() {
  constexpr size_t kEverywhere = 3;
  const std::vector<ModelCase> all = models();
  std::vector<Cell> cells;
  for (size_t s = 0; s < std::size(kShapes); ++s) {
    for (size_t m = 0; m < all.size(); ++m) {
      if (kShapes[s].pp * kShapes[s].v > all[m].layers || (kShapes[s].ep > 0 && !all[m].experts)) continue;
      for (size_t c = 0; c < std::size(kCuts); ++c) {
        const bool turn = c == (s + m) % std::size(kCuts);
        if (m >= kEverywhere && !turn && kShapes[s].ep == 0) continue;
        cells.push_back(make_cell(all[m], kShapes[s], kCuts[c], cells.size()));
      }
    }
  }
  return cells;
}

std::vector<Cell> process_cells() {
  const Shape shapes[] = {{"dp", 1, 2, 1}, {"gpipe", 2, 2, 1}, {"1f1b", 4, 1, 1}, {"interleaved", 2, 1, 2}, {"zb_v", 2, 1, 2}};
  std::vector<Cell> cells;
  size_t salt = 1;
  for (const ModelCase& model : models()) {
    if (model.experts) {
      cells.push_back(make_cell(model, {"dp_ep", 2, 1, 1, 0, 1, 2}, kCuts[2], 0));
      cells.back().processes = true;
    }
    for (const Shape& shape : shapes) {
      if (salt > 15 && salt % 3 != 0) {  // of the later models every third
        ++salt;
        continue;
      }
      cells.push_back(make_cell(model, shape, kCuts[1 + salt % 2], salt));
      cells.back().processes = true;
      cells.back().rendezvous = false;
      ++salt;
    }
  }
  return cells;
}

}  // namespace piper::p1
