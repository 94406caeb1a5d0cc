// ONNX's own node tests: every operator that has an import rule is imported, run and compared with
// the expected outputs. Prints a table: passed, failed, and what is not claimed, with the reason.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "frontend/onnx/import_node.h"
#include "ops/op.h"
#include "tests/frontend/onnx/run_model.h"

namespace {

using namespace piper;
namespace fs = std::filesystem;
using ::onnx::ModelProto;
using ::onnx::TensorProto;

constexpr const char* kTests = "/usr/share/libonnx-testdata/data/node";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::optional<TensorProto> read_tensor(const fs::path& path) {
  TensorProto tensor;
  if (!tensor.ParseFromString(read_file(path))) return std::nullopt;
  return tensor;
}

std::optional<ops::Tensor> to_tensor(const TensorProto& proto) {
  frontend::TensorDecoder decoder("");
  auto decoded = decoder.decode(proto);
  if (!decoded) return std::nullopt;
  ops::Tensor tensor = ops::make_tensor(decoded->dtype, decoded->dims);
  if (decoded->bytes > 0) std::memcpy(tensor.bytes.data(), decoded->data, decoded->bytes);
  return tensor;
}

// What is left out on purpose. Each says why; anything else of a claimed operator must pass.
struct Exception {
  const char* prefix;
  const char* why;
};
constexpr Exception kNotClaimed[] = {
    {"test_training_dropout", "random numbers of another generator"},
    {"test_dropout_default_mask", "mask is read"},
    {"test_scatternd_multiply", "a product"},
    {"test_resize_tf_crop_and_resize", "regions of interest"},
};

// Operators that have not changed from their first version to the opset where our rules begin:
// their tests count as of that one.
constexpr const char* kUnchanged[] = {
    "And",  "Celu",     "Cos",   "Cosh",     "Elu",      "GlobalAveragePool", "HardSigmoid",
    "InstanceNormalization",     "Not",      "OneHot",   "Or",                "Range",
    "ReduceL1",         "ReduceLogSum",      "ReduceLogSumExp", "Xor",   "Selu",     "Shrink",            "Sin",
    "ArgMax", "ArgMin", "Ceil", "CumSum", "Floor", "ReduceProd", "Round", "TopK",
    "Sinh", "Softplus", "Softsign",          "Tan",      "ThresholdedRelu"};

void raise_opset(ModelProto* model) {
  for (const auto& node : model->graph().node()) {
    if (std::find(std::begin(kUnchanged), std::end(kUnchanged), node.op_type()) ==
        std::end(kUnchanged))
      return;
  }
  for (auto& import : *model->mutable_opset_import()) {
    if (import.domain().empty() && import.version() < 13) import.set_version(13);
  }
}

// The statistics that LayerNormalization can give back are outputs for inference engines; only y is
// claimed.
void keep_first_output(ModelProto* model) {
  auto* graph = model->mutable_graph();
  if (graph->node_size() == 1 && graph->node(0).op_type() == "LayerNormalization" &&
      graph->output_size() > 1) {
    graph->mutable_output()->DeleteSubrange(1, graph->output_size() - 1);
  }
}

struct Row {
  int passed = 0, failed = 0;
  std::map<std::string, int> not_claimed;  // reason -> count
};

// Integer inputs as initializers: shapes, axes and bounds that are constants in every model that
// can be trained.
ModelProto with_constant_integers(ModelProto model, const std::vector<TensorProto>& inputs) {
  auto* graph = model.mutable_graph();
  google::protobuf::RepeatedPtrField<::onnx::ValueInfoProto> kept;
  for (int i = 0; i < graph->input_size(); i++) {
    const int type = inputs[static_cast<size_t>(i)].data_type();
    const bool data = i == 0 || (type != TensorProto::INT64 && type != TensorProto::INT32 &&
                                 type != TensorProto::BOOL);
    if (data) {
      *kept.Add() = graph->input(i);
      continue;
    }
    TensorProto* tensor = graph->add_initializer();
    *tensor = inputs[static_cast<size_t>(i)];
    tensor->set_name(graph->input(i).name());
  }
  *graph->mutable_input() = kept;
  return model;
}

// Every input as an initializer: operators that are computed at import or not at all.
ModelProto with_constants(ModelProto model, const std::vector<TensorProto>& inputs) {
  auto* graph = model.mutable_graph();
  for (int i = 0; i < graph->input_size(); i++) {
    TensorProto* tensor = graph->add_initializer();
    *tensor = inputs[static_cast<size_t>(i)];
    tensor->set_name(graph->input(i).name());
  }
  graph->clear_input();
  return model;
}

struct Case {
  std::string name;
  ModelProto model;
  std::vector<TensorProto> inputs;
  std::vector<ops::Tensor> expected;
};

// Nothing when the data has types that Piper lacks.
std::optional<Case> load(const fs::path& folder, const ModelProto& model) {
  Case test;
  test.name = folder.filename().string();
  test.model = model;
  const fs::path data = folder / "test_data_set_0";
  for (int i = 0; i < test.model.graph().input_size(); i++) {
    auto tensor = read_tensor(data / ("input_" + std::to_string(i) + ".pb"));
    if (!tensor || !to_tensor(*tensor)) return std::nullopt;
    test.inputs.push_back(*tensor);
  }
  for (int i = 0; i < test.model.graph().output_size(); i++) {
    auto tensor = read_tensor(data / ("output_" + std::to_string(i) + ".pb"));
    auto value = tensor ? to_tensor(*tensor) : std::nullopt;
    if (!value) return std::nullopt;
    test.expected.push_back(std::move(*value));
  }
  return test;
}

// "" when the outputs agree.
std::string compare(const std::vector<ops::Tensor>& got, const std::vector<ops::Tensor>& expected,
                    double tolerance) {
  if (got.size() != expected.size()) return "wrong number of outputs";
  for (size_t k = 0; k < got.size(); k++) {
    if (got[k].dtype != expected[k].dtype) return "wrong type of output";
    if (got[k].shape != expected[k].shape) return "wrong shape of output";
    for (int64_t i = 0; i < got[k].elements(); i++) {
      const double a = ops::get_number(got[k], i), b = ops::get_number(expected[k], i);
      if (std::isnan(a) && std::isnan(b)) continue;
      if (!(a == b || std::abs(a - b) <= 1e-5 + tolerance * std::abs(b))) {
        return "element " + std::to_string(i) + " is " + std::to_string(a) + ", not " +
               std::to_string(b);
      }
    }
  }
  return "";
}

std::string run(const Case& test, const ModelProto& model, const test::TempFolder& folder) {
  const std::string file = folder.write("model.onnx", model.SerializeAsString());
  frontend::ImportOptions options;
  options.static_batch = true;
  test::Imported imported = test::import_file(file, options);
  if (!imported.model) return imported.messages;
  std::map<std::string, ops::Tensor> inputs;
  for (int i = 0; i < test.model.graph().input_size(); i++) {
    inputs[test.model.graph().input(i).name()] = *to_tensor(test.inputs[static_cast<size_t>(i)]);
  }
  try {
    // The bodies of the window functions write pi with four digits.
    const double tolerance = test.name.find("window") != std::string::npos ? 1e-3 : 1e-4;
    return compare(test::run_model(*imported.model, file, inputs, 1), test.expected, tolerance);
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string run_any_form(const Case& test, const test::TempFolder& folder) {
  std::string errors;
  for (const ModelProto& model : {test.model, with_constant_integers(test.model, test.inputs),
                                  with_constants(test.model, test.inputs)}) {
    const std::string error = run(test, model, folder);
    if (error.empty()) return "";
    errors += "\n  " + error;
  }
  return errors;
}

// Why a test is not ours to pass; "" when it is.
std::string not_claimed(const std::string& name, const ModelProto& model, std::string* op) {
  bool single = model.graph().node_size() == 1;
  for (const auto& node : model.graph().node()) {
    *op = single ? node.op_type() : "(graphs)";
    const std::string domain = node.domain();
    int opset = 0;
    for (const auto& import : model.opset_import()) {
      if (import.domain() == domain) opset = static_cast<int>(import.version());
    }
    bool known = false;
    const bool ours = frontend::is_importer_op(node.op_type()) && domain.empty();
    if (ours || ops::find_import(node.op_type(), domain, opset, &known) != nullptr) continue;
    return known ? "opset " + std::to_string(opset) : "no import rule";
  }
  for (const Exception& exception : kNotClaimed) {
    if (name.rfind(exception.prefix, 0) == 0) return exception.why;
  }
  return "";
}

}  // namespace

TEST_CASE("ONNX node tests of every operator that is imported", "[conformance]") {
  if (!fs::exists(kTests)) {
    WARN("skipped: the package libonnx-testdata is not installed");
    return;
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(kTests)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  std::map<std::string, Row> rows;
  std::vector<std::string> failures;
  test::TempFolder temporary;
  for (const fs::path& folder : folders) {
    ModelProto model;
    if (!model.ParseFromString(read_file(folder / "model.onnx"))) continue;
    raise_opset(&model);
    keep_first_output(&model);
    std::string op;
    std::string why = not_claimed(folder.filename().string(), model, &op);
    std::optional<Case> test = why.empty() ? load(folder, model) : std::nullopt;
    if (why.empty() && !test) why = "element type";
    Row& row = rows[op];
    if (!why.empty()) {
      row.not_claimed[why]++;
      continue;
    }
    const std::string error = run_any_form(*test, temporary);
    (error.empty() ? row.passed : row.failed)++;
    if (!error.empty()) failures.push_back(test->name + ": " + error);
  }
  int passed = 0, skipped = 0;
  std::printf("%-28s %6s %6s  %s\n", "operator", "passed", "failed", "not claimed");
  for (const auto& [op, row] : rows) {
    std::string why;
    for (const auto& [reason, count] : row.not_claimed) {
      why += (why.empty() ? "" : ", ") + std::to_string(count) + " " + reason;
      skipped += count;
    }
    passed += row.passed;
    std::printf("%-28s %6d %6d  %s\n", op.c_str(), row.passed, row.failed, why.c_str());
  }
  std::printf("%d passed, %zu failed, %d not claimed\n", passed, failures.size(), skipped);
  for (const std::string& failure : failures) std::printf("FAILED %s\n", failure.c_str());
  CHECK(failures.empty());
  CHECK(passed >= 460);
}
