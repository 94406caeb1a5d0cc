// Whatever way PyTorch wrote a model, the same training comes out: every file of models/variants against PyTorch's own
// three steps, and against the canonical operations that it has to become.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/compile_model.h"
#include "tests/p1/run_cell.h"

using namespace piper;
using namespace piper::p1;

namespace {

constexpr double kTolerance = 1e-5;
constexpr int kSteps = 3;

// What a family's blocks are made of, after recognition of the exporters' patterns.
const std::map<std::string, std::map<std::string, int>> kOps = {
    {"mlp", {{"LayerNorm", 1}, {"Linear", 7}, {"Relu", 3}, {"Where", 1}, {"Gather", 1}}},
    {"gpt", {{"Attention", 2}, {"Gelu", 2}, {"LayerNorm", 5}, {"Linear", 9}, {"Gather", 2}}},
    {"sdpa", {{"Attention", 2}, {"Gelu", 2}, {"LayerNorm", 5}, {"Linear", 9}, {"Gather", 2}}},
    {"llama", {{"Attention", 2}, {"RmsNorm", 5}, {"Rotary", 4}, {"SwiGlu", 2}, {"Linear", 15}, {"Gather", 1}}},
    {"fresh", {{"Attention", 2}, {"RmsNorm", 5}, {"Rotary", 4}, {"SwiGlu", 2}, {"Linear", 15}, {"Gather", 1}}},
};

struct Variant {
  const char* family;
  const char* file;
  // Statements that this file needs.
  const char* extra = "";
  // A parameter whose name the exporter lost, and the one it has in the model.
  const char* lost = "";
  const char* name = "";
  // Operations that are otherwise than kOps says, and why is in the comment of the row.
  std::map<std::string, int> ops = {};
};

constexpr const char* kTie = "tie \"transformer.wte.weight\" \"lm_head.weight\"\n";
constexpr const char* kSequence = "dim \"sequence\" = 16\n";

const std::vector<Variant> kVariants = {
    {"mlp", "script13"},
    {"mlp", "script17"},
    {"mlp", "script17_folded"},
    {"mlp", "dynamo18"},
    {"mlp", "dynamo18_optimized"},
    {"gpt", "script13"},
    {"gpt", "script13_folded"},
    {"gpt", "script14"},
    {"gpt", "script17"},
    {"gpt", "script17_folded"},
    {"gpt", "script17_static"},
    // The exporter looked the learned positions up and kept the result.
    {"gpt", "script17_folded_static", "treat \"onnx::Add_213\" as parameter\n", "onnx::Add_213", "transformer.wpe.weight", {{"Gather", 1}}},
    {"gpt", "script17_both", kSequence},
    {"gpt", "script17_folded_both", kSequence},
    {"gpt", "script18"},
    {"gpt", "script20"},
    {"gpt", "script20_folded"},
    // With a head of its own, in other layouts: its values are replaced.
    {"gpt", "script17_untied", kTie},
    {"gpt", "script17_folded_untied", kTie},
    {"gpt", "script17_turned", "tie \"transformer.wte.weight\" \"lm_head.weight\" transposed\n"},
    {"gpt", "dynamo18_untied", kTie},
    {"gpt", "dynamo18"},
    {"gpt", "dynamo18_static"},
    {"gpt", "dynamo18_auto"},
    {"gpt", "dynamo18_both", kSequence},
    {"gpt", "dynamo18_optimized_both", kSequence},
    {"gpt", "dynamo20"},
    {"gpt", "dynamo20_optimized_both", kSequence},
    {"gpt", "dynamo21"},
    {"gpt", "dynamo23"},
    {"gpt", "dynamo23_both", kSequence},
    {"gpt", "dynamo23_optimized_both", kSequence},
    {"sdpa", "dynamo18"},
    {"llama", "script14"},
    {"llama", "script17"},
    {"llama", "script17_folded"},
    {"llama", "script17_static"},
    {"llama", "script17_folded_static"},
    {"llama", "script17_both", kSequence},
    {"llama", "script17_folded_both", kSequence},
    {"llama", "script18"},
    {"llama", "script20"},
    {"llama", "script20_folded"},
    {"llama", "dynamo18"},
    {"llama", "dynamo18_static"},
    {"llama", "dynamo18_auto", "dim \"s27\" = 16\n"},
    {"llama", "dynamo18_both", kSequence},
    {"llama", "dynamo18_optimized"},
    {"llama", "dynamo18_optimized_both", kSequence},
    {"llama", "dynamo20"},
    {"llama", "dynamo20_optimized_both", kSequence},
    {"llama", "dynamo21"},
    {"llama", "dynamo23"},
    {"llama", "dynamo23_both", kSequence},
    {"llama", "dynamo23_optimized_both", kSequence},
    {"fresh", "dynamo18"},
    {"fresh", "script17_folded"},
};

// Files that cannot be trained from, and the words that say why.
struct Refused {
  const char* family;
  const char* file;
  const char* why;
};
const Refused kRefused[] = {
    {"gpt", "dynamo18_optimized", "computed constants from parameters: 1 parameter, the first is `transformer.wpe.weight`"},
    {"fresh", "dynamo18_optimized", "merged parameters that had equal values: 4 parameters"},
    {"gpt", "dynamo18_weightless", "2 buffers without values in the model file and without an `init` rule: `transformer.h.0.attn.bias`"},
};

std::string folder(const std::string& family) { return "models/variants/" + family + "/"; }

// A strategy file that is removed again.
class StrategyFile {
 public:
  explicit StrategyFile(const std::string& text) {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() / fmt::format("piper_variant_{}_{}.piper", getpid(), count++)).string();
    std::ofstream(path_) << text;
  }
  ~StrategyFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string strategy_text(const std::string& family, const std::string& extra, const std::string& rules = "") {
  const char* loss = family == "mlp" ? "mse(prediction = output \"prediction\", target = input \"y\")"
                                     : "cross_entropy(logits = output \"logits\", target = input \"labels\", ignore_index = -100)";
  return fmt::format(
      "{}train {{\n  loss {}\n  optimizer adamw(lr = 1e-3, betas = [0.9, 0.95], eps = 1e-3, weight_decay = 0.1)\n"
      "  clip_norm 1e9\n  batch 8\n  seed 7\n{}}}\n",
      extra, loss, rules);
}

Cell cell_of(const std::string& family, const std::string& file, const StrategyFile& strategy) {
  Cell cell;
  cell.model = {family, folder(family) + file + ".onnx", folder(family) + "data.safetensors", {}, 2};
  cell.strategy = strategy.path();
  return cell;
}

std::map<std::string, int> op_counts(const Cell& cell) {
  support::SourceMap sources;
  support::Diagnostics diagnostics(sources);
  ir::Model model;
  ir::Strategy strategy;
  const bool loaded = cli::load_strategy(cell.model.file, cell.strategy, {}, diagnostics, model, strategy);
  INFO(diagnostics.render());
  REQUIRE(loaded);
  std::map<std::string, int> counts;
  for (const ir::Op& op : model.ops) counts[op.kind]++;
  return counts;
}

void check_ops(const Variant& v, const Cell& cell) {
  std::map<std::string, int> counts = op_counts(cell);
  std::map<std::string, int> expected = kOps.at(v.family);
  for (const auto& [kind, count] : v.ops) expected[kind] = count;
  for (const auto& [kind, count] : expected) {
    INFO(kind);
    CHECK(counts[kind] == count);
  }
  // What only exporters' spellings of the patterns consist of.
  for (const char* kind : {"Softmax", "MatMul", "Erf", "Pow", "Sqrt", "Expand", "Fill", "Range", "Trilu", "Identity"}) {
    INFO(kind);
    CHECK(counts[kind] == 0);
  }
}

// Compares the run with PyTorch's and returns the largest difference.
double check_golden(const Variant& v, const Result& result, const std::string& file) {
  const Tensors golden = read_tensors(folder(v.family) + file);
  REQUIRE_FALSE(golden.empty());
  for (size_t step = 0; step < kSteps; ++step) {
    CHECK(result.losses[step] == Approx(golden.at(fmt::format("loss64.{}", step))[0]).epsilon(kTolerance));
  }
  CHECK(result.grad_norms[0] == Approx(golden.at("norm.0")[0]).epsilon(kTolerance));
  const double floor = noise_floor(result.gradients);
  std::set<std::string> compared;
  double worst = 0;
  for (const auto& [key, values] : golden) {
    const bool gradient = key.starts_with("grad."), weight = key.starts_with("weight.");
    if (!gradient && !weight) continue;
    std::string tensor = key.substr(key.find('.') + 1);
    if (tensor == v.name) tensor = v.lost;
    const Tensors& ours = gradient ? result.gradients : result.weights;
    if (!ours.count(tensor)) continue;  // the other name of a shared parameter
    INFO(key);
    if (weight) compared.insert(tensor);
    double largest = 0;
    for (double value : values) largest = std::max(largest, std::abs(value));
    if (gradient && largest <= floor) continue;
    const double difference = relative_difference(ours.at(tensor), values);
    worst = std::max(worst, difference);
    CHECK(difference < kTolerance);
  }
  // Every parameter we trained is one of PyTorch's, when the file has all of those.
  if (golden.count("weight." + result.weights.begin()->first)) CHECK(compared.size() == result.weights.size());
  return worst;
}

}  // namespace

TEST_CASE("every way to export a model gives PyTorch's training") {
  for (const Variant& v : kVariants) {
    INFO(v.family << "/" << v.file);
    const StrategyFile strategy(strategy_text(v.family, v.extra));
    const Cell cell = cell_of(v.family, v.file, strategy);
    check_ops(v, cell);
    const Result result = run(cell, kSteps);
    INFO(result.error);
    CHECK(result.error.empty());
    if (!result.error.empty()) continue;
    const double worst = check_golden(v, result, "golden.safetensors");
    fmt::print("{:<40} {} parameters, largest difference {:.1e}\n", fmt::format("{}/{}", v.family, v.file), result.weights.size(), worst);
  }
  fmt::print("{} exports\n", kVariants.size());
}

TEST_CASE("a sequence that the export left open is trained at two lengths") {
  for (const Variant& v : kVariants) {
    if (std::string(v.extra) != kSequence) continue;
    INFO(v.family << "/" << v.file);
    const StrategyFile strategy(strategy_text(v.family, "dim \"sequence\" = 12\n"));
    Cell cell = cell_of(v.family, v.file, strategy);
    cell.model.data = folder(v.family) + "short_data.safetensors";
    const Result result = run(cell, kSteps);
    INFO(result.error);
    if (std::string(v.family) == "gpt" && std::string(v.file).starts_with("dynamo")) {
      // torch.export has fixed the length behind the sliced mask, whatever it says of the input.
      CHECK(result.error.find("error[E0406]") != std::string::npos);
      continue;
    }
    REQUIRE(result.error.empty());
    check_golden(v, result, "short_golden.safetensors");
  }
}

TEST_CASE("exports that cannot be trained from are refused") {
  for (const Refused& r : kRefused) {
    INFO(r.family << "/" << r.file);
    const StrategyFile strategy(strategy_text(r.family, "", "  init param \"**\" normal(std = 0.02)\n"));
    const Result result = run(cell_of(r.family, r.file, strategy), 1);
    INFO(result.error);
    CHECK(result.error.find(r.why) != std::string::npos);
    CHECK(result.error.find("export") != std::string::npos);
  }
}

TEST_CASE("values made by init rules depend on seed, name and element only") {
  const char* rules = "  init param \"**\" normal(std = 0.02)\n  init param \"**.bias\" constant(0.0)\n  init param \"**.ln_*.weight\" constant(1.0)\n";
  const StrategyFile strategy(strategy_text("sdpa", "", rules));
  // A file without weights, one with weights that the rules replace, and one that holds the matrices transposed.
  const Result without = run(cell_of("sdpa", "dynamo18_weightless", strategy), kSteps);
  INFO(without.error);
  REQUIRE(without.error.empty());
  const Result with = run(cell_of("sdpa", "dynamo18", strategy), kSteps);
  REQUIRE(with.error.empty());
  const StrategyFile folded_strategy(strategy_text("gpt", kSequence, rules));
  const Result folded = run(cell_of("gpt", "dynamo18_optimized_both", folded_strategy), kSteps);
  REQUIRE(folded.error.empty());
  for (const Result* other : {&with, &folded}) {
    const Difference d = compare(*other, without);
    INFO(d.worst);
    CHECK(d.loss < kTolerance);
    CHECK(d.weights < kTolerance);
    CHECK(d.gradients < 1e-4);  // of tiny gradients at the start; the weights agree
  }
  // Another seed, other values.
  Cell other = cell_of("sdpa", "dynamo18_weightless", strategy);
  other.sets["train.seed"] = "8";
  const Result seeded = run(other, kSteps);
  REQUIRE(seeded.error.empty());
  CHECK(compare(seeded, without).weights > 0.1);
  // On several devices, the same.
  const StrategyFile parallel("mesh dev[dp = 2]\nreplicate all() over dp\n" + strategy_text("sdpa", "", rules));
  const Result replicated = run(cell_of("sdpa", "dynamo18_weightless", parallel), kSteps);
  INFO(replicated.error);
  REQUIRE(replicated.error.empty());
  CHECK(compare(replicated, without).weights < kTolerance);
}

TEST_CASE("parameters without values and without a rule are all named") {
  const StrategyFile strategy(strategy_text("sdpa", "", "  init param \"**.weight\" normal(std = 0.02)\n"));
  const Result result = run(cell_of("sdpa", "dynamo18_weightless", strategy), 1);
  CHECK(result.error.find("13 parameters without values in the model file and without an `init` rule: `transformer.h.0.attn.c_attn.bias`") != std::string::npos);
  CHECK(result.error.find("`transformer.ln_f.bias`") != std::string::npos);
  CHECK(result.error.find("init param") != std::string::npos);
}

TEST_CASE("the tables of this test name every file of models/variants") {
  std::set<std::string> named{"sdpa/dynamo18_weightless"};
  for (const Variant& v : kVariants) named.insert(fmt::format("{}/{}", v.family, v.file));
  for (const Refused& r : kRefused) named.insert(fmt::format("{}/{}", r.family, r.file));
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("models/variants")) {
    if (entry.path().extension() != ".onnx") continue;
    found.insert(entry.path().parent_path().filename().string() + "/" + entry.path().stem().string());
  }
  CHECK(named == found);
}
