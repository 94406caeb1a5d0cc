// The models of models/: what they import to, and that the imported model gives PyTorch's loss.

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/frontend/onnx/run_model.h"

namespace {

using namespace piper;
using test::count_ops;

// One tensor of a safetensors file.
ops::Tensor read_safetensor(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), 8);
  std::string header(header_size, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_size));
  const auto entry = nlohmann::json::parse(header).at(name);
  const std::string type = entry.at("dtype");
  const ir::DType dtype = type == "I64"   ? ir::DType::kI64
                          : type == "F64" ? ir::DType::kF64
                                          : ir::DType::kF32;
  ops::Tensor tensor = ops::make_tensor(dtype, entry.at("shape").get<std::vector<int64_t>>());
  file.seekg(
      static_cast<std::streamoff>(8 + header_size + entry.at("data_offsets")[0].get<uint64_t>()));
  file.read(reinterpret_cast<char*>(tensor.bytes.data()),
            static_cast<std::streamsize>(tensor.bytes.size()));
  REQUIRE(file.good());
  return tensor;
}

ops::Tensor first_samples(const ops::Tensor& all, int64_t batch) {
  std::vector<int64_t> shape = all.shape;
  const size_t each = all.bytes.size() / static_cast<size_t>(shape[0]);
  shape[0] = batch;
  ops::Tensor some = ops::make_tensor(all.dtype, shape);
  std::memcpy(some.bytes.data(), all.bytes.data(), each * static_cast<size_t>(batch));
  return some;
}

// Mean cross entropy over the labels that are not -100.
double cross_entropy(const ops::Tensor& logits, const ops::Tensor& labels) {
  const int64_t classes = logits.shape.back();
  double sum = 0, counted = 0;
  for (int64_t row = 0; row < labels.elements(); row++) {
    const int64_t label = labels.as<int64_t>()[row];
    if (label == -100) continue;
    const float* x = logits.as<float>() + row * classes;
    double largest = -INFINITY, total = 0;
    for (int64_t c = 0; c < classes; c++) largest = std::max(largest, static_cast<double>(x[c]));
    for (int64_t c = 0; c < classes; c++) total += std::exp(x[c] - largest);
    sum += std::log(total) + largest - x[label];
    counted++;
  }
  return sum / counted;
}

double mean_squared_error(const ops::Tensor& prediction, const ops::Tensor& target) {
  double sum = 0;
  for (int64_t i = 0; i < target.elements(); i++) {
    const double d = ops::get_number(prediction, i) - ops::get_number(target, i);
    sum += d * d;
  }
  return sum / static_cast<double>(target.elements());
}

constexpr int64_t kBatch = 8;

// The loss of the first golden batch.
void check_loss(const std::string& name, const std::string& file, const ir::Model& model) {
  const std::string folder = "models/" + name + "/";
  const bool image = model.value(model.inputs[0]).name == "image";
  const std::string target_name = name == "mlp" ? "y" : image ? "label" : "labels";
  std::map<std::string, ops::Tensor> inputs;
  for (ir::ValueId id : model.inputs) {
    const std::string& input = model.value(id).name;
    inputs[input] = first_samples(read_safetensor(folder + "data.safetensors", input), kBatch);
  }
  const auto outputs = test::run_model(model, file, inputs, kBatch);
  const ops::Tensor target =
      first_samples(read_safetensor(folder + "data.safetensors", target_name), kBatch);
  const double loss =
      name == "mlp" ? mean_squared_error(outputs[0], target) : cross_entropy(outputs[0], target);
  const double golden =
      ops::get_number(read_safetensor(folder + "golden.safetensors", "loss64.0"), 0);
  CHECK(loss == Approx(golden).epsilon(1e-6));
}

void check_parameters(const std::string& name, const ir::Model& model) {
  int64_t elements = 0;
  for (const ir::Parameter& param : model.params) {
    INFO(param.name);
    if (param.is_buffer) continue;  // running statistics
    CHECK(param.trainable);
    CHECK(!param.transposed);
    elements += ir::num_elements(param.type.shape).constant;
  }
  const std::map<std::string, int64_t> expected = {{"mlp", 5960},
                                                   {"gpt", 1288640},
                                                   {"gpt_tiny", 53440},
                                                   {"llama", 217664},
                                                   {"llama_tiny", 50464},
                                                   {"bert_tiny", 54688},
                                                   {"vit_tiny", 53288},
                                                   {"t5_tiny", 45376},
                                                   {"cnn_gn", 24472},
                                                   {"cnn_bn", 24464},
                                                   {"moe_tiny", 63264},
                                                   {"moe_capacity", 54496},
                                                   {"rnn_tiny", 15008}};
  CHECK(elements == expected.at(name));
}

// No op is left that only exists because of how the exporter writes shapes.
void check_no_shape_ops(const ir::Model& model) {
  for (const ir::Op& op : model.ops) {
    INFO(op.kind << " of " << op.name);
    for (const char* kind : {"Expand", "Fill", "Range", "Where", "Cast", "Identity"}) {
      if (op.path.rfind("layers.4", 0) == 0 || op.path == "layers.0")
        continue;  // mlp's own mask and index
      CHECK(op.kind != kind);
    }
    CHECK(!op.path.empty());
  }
}

std::string model_file(const std::string& name, bool dynamo) {
  return "models/" + name + "/" + name + (dynamo ? ".dynamo.onnx" : ".onnx");
}

std::string counts(const ir::Model& model) {
  std::map<std::string, int> by_kind;
  for (const ir::Op& op : model.ops) by_kind[op.kind]++;
  std::string text;
  for (const auto& [kind, count] : by_kind) text += kind + " " + std::to_string(count) + ", ";
  return text;
}

ir::Model import_model(const std::string& name, bool dynamo) {
  test::Imported imported = test::import_file(model_file(name, dynamo));
  INFO(imported.messages);
  REQUIRE(imported.model);
  return std::move(*imported.model);
}

}  // namespace

TEST_CASE("gpt imports to its blocks", "[models]") {
  const std::string name = GENERATE("gpt_tiny", "gpt");
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model(name, dynamo);
  INFO(name << (dynamo ? " dynamo" : "") << "\n" << to_string(model));
  CHECK(counts(model) ==
        "Add 9, Attention 4, Gather 2, Gelu 4, LayerNorm 9, Linear 17, Reshape 16, Slice 12, "
        "Transpose 16, ");
  for (const ir::Op& op : model.ops) {
    if (op.kind == "Linear" && op.path != "lm_head") CHECK(op.inputs.size() == 3);
    if (op.kind == "Attention") {
      CHECK(op.attrs.i("causal") == 1);
      CHECK(op.inputs.size() == 3);
      CHECK(op.path.find(".attn") != std::string::npos);
    }
    if (op.kind == "Gelu") CHECK(op.attrs.s("approximate") == "tanh");
  }
  check_no_shape_ops(model);
  check_parameters(name, model);
  check_loss(name, model_file(name, dynamo), model);
}

TEST_CASE("llama imports to its blocks", "[models]") {
  const std::string name = GENERATE("llama_tiny", "llama");
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model(name, dynamo);
  INFO(name << (dynamo ? " dynamo" : "") << "\n" << to_string(model));
  CHECK(counts(model) ==
        "Add 8, Attention 4, Gather 1, Linear 29, Reshape 16, RmsNorm 9, Rotary 8, SwiGlu 4, "
        "Transpose 16, ");
  for (const ir::Op& op : model.ops) {
    if (op.kind != "Attention") continue;
    CHECK(op.attrs.i("causal") == 1);
    CHECK(model.value(op.inputs[0]).type.shape[1] == ir::Dim(4));
    CHECK(model.value(op.inputs[1]).type.shape[1] ==
          ir::Dim(2));  // keys are not repeated for their groups
    CHECK(model.value(op.inputs[2]).type.shape[1] == ir::Dim(2));
  }
  CHECK(model.constants.size() == 2);  // one cos and one sin table for all layers
  check_no_shape_ops(model);
  check_parameters(name, model);
  check_loss(name, model_file(name, dynamo), model);
}

TEST_CASE("mlp imports with its tied weight, mask and index", "[models]") {
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model("mlp", dynamo);
  INFO(to_string(model));
  CHECK(counts(model) ==
        "Add 3, Cast 1, Concat 2, Gather 1, Greater 2, LayerNorm 1, Linear 7, Mul 1, Neg 1, "
        "ReduceSum 1, Relu 3, "
        "Sigmoid 1, Tanh 1, Where 1, ");
  std::map<std::string, int> uses;
  for (const ir::Op& op : model.ops) {
    for (ir::ValueId id : op.inputs) {
      if (id.valid() && model.value(id).param.valid())
        uses[model.params[model.value(id).param.index()].name]++;
    }
  }
  CHECK(uses[dynamo ? "layers.6.weight" : "layers.2.weight"] == 2);
  check_no_shape_ops(model);
  check_parameters("mlp", model);
  check_loss("mlp", model_file("mlp", dynamo), model);
}

TEST_CASE("an encoder with padding imports to its blocks", "[models]") {
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model("bert_tiny", dynamo);
  INFO(to_string(model));
  CHECK(counts(model) ==
        "Add 10, Attention 4, Cast 1, Gather 3, Gelu 5, LayerNorm 10, Linear 26, "
        "Mul 1, Reshape 17, Sub 1, Transpose 16, ");
  CHECK(model.inputs.size() == 3);
  check_parameters("bert_tiny", model);
  check_loss("bert_tiny", model_file("bert_tiny", dynamo), model);
}

TEST_CASE("a vision transformer imports to its blocks", "[models]") {
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model("vit_tiny", dynamo);
  INFO(to_string(model));
  CHECK(counts(model) ==
        "Add 9, Attention 4, Concat 1, Conv 1, Expand 1, Gather 1, Gelu 4, "
        "LayerNorm 9, Linear 17, Reshape 21, Slice 12, Transpose 9, ");
  check_parameters("vit_tiny", model);
  check_loss("vit_tiny", model_file("vit_tiny", dynamo), model);
}

TEST_CASE("position buckets are computed at import, their biases are not", "[models]") {
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model("t5_tiny", dynamo);
  INFO(to_string(model));
  CHECK(counts(model) ==
        "Add 8, Attention 4, Gather 2, Gelu 4, Linear 29, Mul 4, Reshape 17, "
        "RmsNorm 9, Transpose 17, ");
  check_parameters("t5_tiny", model);
  check_loss("t5_tiny", model_file("t5_tiny", dynamo), model);
}

TEST_CASE("residual networks import to their blocks", "[models]") {
  const std::string name = GENERATE("cnn_gn", "cnn_bn");
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model(name, dynamo);
  INFO(name << (dynamo ? " dynamo" : "") << "\n" << to_string(model));
  if (name == "cnn_gn") {
    CHECK(counts(model) ==
          "Add 22, Conv 11, LayerNorm 9, Linear 1, MaxPool 1, Mul 18, ReduceMean 1, Relu 9, "
          "Reshape 37, ");
  } else {
    CHECK(counts(model) == std::string("Add 4, ") +
                               (dynamo ? "BatchNormInference" : "BatchNorm") +
                               " 9, Conv 11, Linear 1, MaxPool 1, ReduceMean 1, Relu 9, Reshape 1, ");
  }
  check_parameters(name, model);
  // torch.export writes batch normalisation in its inference form: its loss is another one.
  if (name == "cnn_gn" || !dynamo) check_loss(name, model_file(name, dynamo), model);
}

TEST_CASE("recurrent layers import to products and activations", "[models]") {
  const bool dynamo = GENERATE(false, true);
  const ir::Model model = import_model("rnn_tiny", dynamo);
  INFO(to_string(model));
  check_parameters("rnn_tiny", model);
  check_loss("rnn_tiny", model_file("rnn_tiny", dynamo), model);
}

TEST_CASE("a mixture of experts imports to its blocks", "[models]") {
  const bool dynamo = GENERATE(false, true);
  const std::string name = GENERATE("moe_tiny", "moe_capacity");
  const ir::Model model = import_model(name, dynamo);
  INFO(to_string(model));
  // Per layer: a route, a way to the experts and back, two products.
  for (const char* kind : {"MoERoute", "MoEDispatch", "MoECombine", "TopK"}) CHECK(count_ops(model, kind) == 4);
  CHECK(count_ops(model, "GroupedLinear") == 8);
  CHECK(count_ops(model, "SwiGlu") == 8);
  CHECK(count_ops(model, "Range") == 0);
  CHECK(test::find_op(model, "MoERoute").attrs.i("capacity") == (name == "moe_tiny" ? 0 : 9));
  for (const ir::Op& op : model.ops) {
    if (op.kind.starts_with("MoE") || op.kind == "GroupedLinear") CHECK(op.path.find(".mlp.experts") != std::string::npos);
    if (op.kind == "GroupedLinear") CHECK(model.value(op.inputs[1]).param.valid());
  }
  check_parameters(name, model);
}

TEST_CASE("both exporters give the same paths", "[models]") {
  const std::string name =
      GENERATE("mlp", "gpt_tiny", "llama_tiny", "bert_tiny", "vit_tiny", "t5_tiny", "cnn_gn");
  std::multiset<std::string> paths[2];
  for (bool dynamo : {false, true}) {
    for (const ir::Op& op : import_model(name, dynamo).ops)
      paths[dynamo].insert(op.kind + " in " + op.path);
  }
  CHECK(paths[0] == paths[1]);
}

TEST_CASE("canonical rewrites leave the models' numbers alone", "[models]") {
  const std::string name = GENERATE("gpt_tiny", "llama_tiny", "moe_tiny", "moe_capacity");
  const bool dynamo = GENERATE(false, true);
  const std::string file = model_file(name, dynamo);
  frontend::ImportOptions options;
  options.canonicalise = false;
  test::Imported plain = test::import_file(file, options);
  INFO(plain.messages);
  REQUIRE(plain.model);
  const ir::Model canonical = import_model(name, dynamo);
  const auto inputs = test::random_inputs(canonical, 3, 64);
  const double difference = test::largest_difference(test::run_model(*plain.model, file, inputs, 3),
                                                     test::run_model(canonical, file, inputs, 3));
  CHECK(difference < 1e-5);
}
